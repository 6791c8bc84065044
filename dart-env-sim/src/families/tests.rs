use std::collections::{BTreeMap, BTreeSet};

use dart_core::{
    Demonstrate, Environment, Frame, Observation, Size, StepStatus, UiElement, UiRole,
};

use super::*;
use crate::{SimFactory, canvas::Canvas, font, words};

fn configs() -> [SimConfig; 2] {
    [SimConfig::default(), SimConfig::phone()]
}

/// Every family with the configuration of its device.
fn each(mut check: impl FnMut(&Family, &SimConfig)) {
    for config in configs() {
        for family in of_device(config.device) {
            check(family, &config);
        }
    }
}

#[test]
fn there_are_enough_families() {
    assert!(of_device(SimDeviceKind::Desktop).count() >= 9);
    assert!(of_device(SimDeviceKind::Phone).count() >= 3);
}

#[test]
fn no_layout_is_in_training_and_in_evaluation() {
    each(|family, config| {
        let layouts = |split, seeds| -> BTreeSet<u64> {
            (0..seeds)
                .map(|seed| layout::hash(&family.scene(config, split, seed).unwrap().ui))
                .collect()
        };
        let train = layouts(Split::Train, 3000);
        for split in [Split::Layouts, Split::Words] {
            assert!(train.is_disjoint(&layouts(split, 1000)), "{}", family.name);
        }
    });
}

#[test]
fn every_family_has_hundreds_of_layouts() {
    each(|family, config| {
        let distinct: BTreeSet<u64> = (0..3000)
            .map(|seed| layout::hash(&family.scene(config, Split::Train, seed).unwrap().ui))
            .collect();
        println!(
            "{:16} {} layouts in 3000 seeds",
            family.name,
            distinct.len()
        );
        assert!(distinct.len() >= 200, "{}", family.name);
    });
}

#[test]
fn the_words_split_shows_held_out_words_only() {
    each(|family, config| {
        for (split, held_out) in [
            (Split::Train, false),
            (Split::Layouts, false),
            (Split::Words, true),
        ] {
            for seed in 0..200 {
                let scene = family.scene(config, split, seed).unwrap();
                for word in scene.instruction.split('"').skip(1).step_by(2) {
                    let is = words::HELD_OUT.contains(&word);
                    assert_eq!(is, held_out, "{} {split:?} {word}", family.name);
                }
            }
        }
    });
}

#[test]
fn a_seed_fixes_everything_and_seeds_differ() {
    each(|family, config| {
        let shown = |seed| {
            let scene = family.scene(config, Split::Train, seed).unwrap();
            format!("{scene:?}")
        };
        assert_eq!(shown(5), shown(5));
        let distinct: BTreeSet<_> = (0..20).map(shown).collect();
        assert_eq!(distinct.len(), 20, "{}", family.name);
    });
}

#[test]
fn instructions_share_one_template_for_each_family() {
    let mut templates: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for config in configs() {
        for family in of_device(config.device) {
            for seed in 0..100 {
                let scene = family.scene(&config, Split::Train, seed).unwrap();
                let parts: Vec<_> = scene.instruction.split('"').step_by(2).collect();
                let template = parts.concat();
                let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
                templates
                    .entry(family.name)
                    .or_default()
                    .insert(template.trim_end().chars().map(digits).collect());
            }
        }
    }
    for (family, templates) in templates {
        assert_eq!(templates.len(), 1, "{family}: {templates:?}");
    }
}

#[test]
fn every_screen_size_and_grid_has_room() {
    for (width, height, grid) in [(128, 96, 1), (160, 120, 8), (255, 191, 5), (1280, 800, 8)] {
        for base in configs() {
            let turned = base.device == SimDeviceKind::Phone;
            let screen = if turned && width > 128 {
                Size::new(height, width)
            } else if turned {
                base.screen
            } else {
                Size::new(width, height)
            };
            let config = SimConfig {
                screen,
                grid,
                ..base
            };
            for family in of_device(config.device) {
                for split in Split::ALL {
                    for seed in 0..20 {
                        family.scene(&config, split, seed).unwrap();
                    }
                }
            }
        }
    }
}

/// The list of texts is checked against the pixels, from the first screen of the expert to the
/// last: where a glyph has ink there is one colour, where it has none there is another.
#[tokio::test]
async fn listed_texts_are_drawn_exactly_there() {
    let mut texts = 0;
    for config in configs() {
        let mut env = SimFactory::new(config.clone())
            .unwrap()
            .environment()
            .unwrap();
        for task in config.tasks(Split::Train).unwrap() {
            for seed in 0..20 {
                let mut seen = env.reset(&task, seed).await.unwrap().observation;
                let mut status = StepStatus::Running;
                while status == StepStatus::Running {
                    texts += assert_listed(&seen);
                    let action = env.expert_action().await.unwrap().unwrap();
                    let outcome = env.step(&action).await.unwrap();
                    (seen, status) = (outcome.observation, outcome.status);
                }
                texts += assert_listed(&seen);
            }
        }
    }
    assert!(texts > 3000, "{texts}");
}

/// Checks every listed text; returns how many there are.
fn assert_listed(seen: &Observation) -> usize {
    let elements = seen.ui.as_ref().unwrap();
    let texts = elements.iter().filter(|e| !e.text.is_empty());
    texts
        .map(|element| assert_drawn(&seen.frame, element))
        .count()
}

fn assert_drawn(frame: &Frame, element: &UiElement) {
    let bounds = element.bounds;
    let expected = font::text_bounds(bounds.x, bounds.y, element.text.chars().count());
    assert_eq!(bounds, expected, "{element:?}");
    let mut colors = [BTreeSet::new(), BTreeSet::new()];
    for (index, c) in element.text.chars().enumerate() {
        let left = bounds.x + index as i32 * font::ADVANCE;
        for (dy, row) in font::glyph(c).iter().enumerate() {
            for dx in 0..font::GLYPH_WIDTH {
                let inked = (row >> (font::GLYPH_WIDTH - 1 - dx)) & 1 == 1;
                let (x, y) = ((left + dx) as u32, bounds.y as u32 + dy as u32);
                colors[usize::from(inked)].insert(frame.pixel(x, y).unwrap());
            }
        }
    }
    assert_eq!(colors[1].len(), 1, "{element:?}");
    assert!(colors[0].is_disjoint(&colors[1]), "{element:?}");
}

#[test]
fn labels_fill_rows_of_cells() {
    each(|family, config| {
        for seed in 0..40 {
            let scene = family.scene(config, Split::Train, seed).unwrap();
            let elements = scene.ui.paint(&mut Canvas::new(scene.ui.size));
            let labels = elements
                .iter()
                .filter(|e| e.role != UiRole::Slider && !e.text.is_empty());
            for label in labels {
                assert_eq!(label.bounds.y % 8, 0, "{}: {label:?}", family.name);
            }
        }
    });
}

#[test]
fn targets_are_centres_of_cells() {
    each(|family, config| {
        for seed in 0..40 {
            let scene = family.scene(config, Split::Train, seed).unwrap();
            let action = scene.goal.next(&scene.ui).unwrap();
            for point in action.points() {
                assert_eq!(
                    (point.x % 8, point.y % 8),
                    (4, 4),
                    "{}: {action:?}",
                    family.name
                );
            }
        }
    });
}

#[test]
fn unknown_families_are_named() {
    let error = find("juggle", SimDeviceKind::Desktop)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("juggle") && error.contains("click-button"),
        "{error}"
    );
}
