//! The page. Everything in it that came from a task or a model is escaped.

use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use dart_core::{ParsedAction, Step, Trajectory};

use super::words;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;\
color:#1c2733}figure{display:flex;gap:1.5rem;margin:1.5rem 0;align-items:flex-start}\
img{border:1px solid #b8c2cc;max-width:60%}code{background:#eef2f5;padding:.1rem .3rem}\
td{padding:.1rem .8rem .1rem 0;vertical-align:top}.bad{color:#b00020}";

/// One page with every picture inside it.
pub(super) fn page(trajectory: &Trajectory, pictures: &[Vec<u8>]) -> String {
    let title = format!("{} · {}", trajectory.task.id, trajectory.id);
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{}</title>\
         <style>{STYLE}</style><h1>{}</h1><table>",
        escape(&title),
        escape(trajectory.task.id.as_str()),
    );
    row(&mut page, "instruction", &trajectory.instruction);
    row(&mut page, "outcome", &words::outcome(trajectory.outcome));
    row(&mut page, "ended by", words::stop(trajectory.stop));
    row(&mut page, "trajectory", &trajectory.id.to_string());
    row(&mut page, "group", &trajectory.group.to_string());
    row(&mut page, "seed", &trajectory.seed.to_string());
    if let Some(error) = &trajectory.error {
        row(&mut page, "error", error);
    }
    page.push_str("</table>");
    for (index, (step, picture)) in trajectory.steps.iter().zip(pictures).enumerate() {
        figure(&mut page, index, step, picture);
    }
    page.push_str("</html>\n");
    page
}

fn figure(page: &mut String, index: usize, step: &Step, picture: &[u8]) {
    let decision = &step.decision;
    let _ = write!(
        page,
        "<figure><img alt=\"screen of step {index}\" src=\"data:image/png;base64,{}\">\
         <figcaption><h2>step {index}</h2><p><code>{}</code></p><table>",
        STANDARD.encode(picture),
        escape(&decision.text),
    );
    match &decision.action {
        ParsedAction::Valid(action) => row(page, "action", &words::action(action)),
        ParsedAction::Invalid(reason) => row(page, "not an action", reason),
    }
    let log_prob: f32 = decision.rollout_log_probs.iter().sum();
    row(
        page,
        "log-prob",
        &format!("{log_prob:.3} over {} tokens", decision.token_ids.len()),
    );
    if let Some(entropies) = &decision.entropies {
        let mean = entropies.iter().sum::<f32>() / entropies.len().max(1) as f32;
        row(page, "mean entropy", &format!("{mean:.3} nat"));
    }
    row(page, "policy version", &decision.version.to_string());
    row(
        page,
        "time",
        &format!(
            "{:.1} ms deciding, {:.1} ms acting",
            step.decide_ms, step.act_ms
        ),
    );
    if let Some(error) = &step.observation.last_action_error {
        row(page, "previous action", error);
    }
    page.push_str("</table></figcaption></figure>");
}

fn row(page: &mut String, name: &str, value: &str) {
    let _ = write!(page, "<tr><td>{}<td>{}", escape(name), escape(value));
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_and_model_text_cannot_become_markup() {
        assert_eq!(
            escape("<script>alert(\"x\")</script>&'\u{7}"),
            "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;&#39;\u{fffd}"
        );
    }
}
