//! `ablate`: the paper's ablations on the simulator, each piece of the method alone and all of them,
//! with the same budget of environment steps.
//!
//! Runs of a seed share one warm start: it is made once, and every row goes on from a copy of it.
//! What a run came to lies in `--out` under its row and seed; it is not run again while the settings
//! are the same, so an interrupted grid goes on where it was.

mod grid;
mod results;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use self::{
    grid::Row,
    results::{Outcome, csv, table},
};
use crate::process;

const CONFIG: &str = "configs/ablation.toml";

/// Evaluations of a run.
const POINTS: u64 = 6;

/// What the command line says.
#[derive(Debug, PartialEq)]
struct Options {
    seeds: u64,
    steps: u64,
    jobs: usize,
    rows: Vec<Row>,
    settings: Vec<String>,
    out: PathBuf,
    program: Option<PathBuf>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            seeds: 3,
            steps: 60_000,
            jobs: 2,
            rows: grid::rows(None)?,
            settings: Vec::new(),
            out: process::target().join("ablate"),
            program: None,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || {
                let value = arguments.next();
                value.with_context(|| format!("{argument} needs a value"))
            };
            let number = |text: &String| -> Result<u64> {
                let number = text.parse().ok().filter(|number| *number > 0);
                number.with_context(|| format!("{argument} is a number above 0, not `{text}`"))
            };
            match argument.as_str() {
                "--seeds" => options.seeds = number(value()?)?,
                "--steps" => options.steps = number(value()?)?,
                "--jobs" => options.jobs = number(value()?)? as usize,
                "--rows" => options.rows = grid::rows(Some(value()?))?,
                "--set" => options.settings.push(value()?.clone()),
                "--out" => options.out = std::path::absolute(value()?)?,
                "--program" => options.program = Some(PathBuf::from(value()?)),
                other => bail!(
                    "no option `{other}`: --seeds N, --steps N, --jobs N, --rows A,B, \
                     --set KEY=VALUE, --out DIR, --program FILE"
                ),
            }
        }
        Ok(options)
    }

    /// The settings of a row's runs.
    fn of_row(&self, row: Row) -> Vec<String> {
        let every = (self.steps / POINTS).max(1);
        let mut settings = vec![
            // The warm start alone had none.
            "training.max_steps=1000000".to_owned(),
            format!("training.max_environment_steps={}", self.steps),
            format!("evaluation.every_environment_steps={every}"),
        ];
        settings.extend(self.settings.iter().cloned());
        settings.extend(row.settings.iter().map(|setting| (*setting).to_owned()));
        settings
    }

    fn budgets(&self) -> Vec<u64> {
        (1..=POINTS)
            .map(|point| self.steps / POINTS * point)
            .collect()
    }
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments)?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => build()?,
    };
    fs::create_dir_all(&options.out)?;
    let grid = Grid {
        options: &options,
        program: &program,
    };
    let start = Instant::now();
    grid.each((0..options.seeds).collect(), |seed| grid.warm_start(*seed))?;
    // Seeds first: after a third of the time every row has one.
    let runs = (0..options.seeds).flat_map(|seed| options.rows.iter().map(move |row| (*row, seed)));
    grid.each(runs.collect(), |(row, seed)| grid.run(*row, *seed))?;
    grid.report()?;
    println!("the grid took {} s", start.elapsed().as_secs());
    Ok(())
}

/// The trainer in release mode.
fn build() -> Result<PathBuf> {
    let arguments = [
        "build",
        "--release",
        "--package",
        "dart-cli",
        "--bin",
        "dart-rl",
    ];
    process::run(process::cargo().args(arguments))?;
    Ok(process::target().join("release/dart-rl"))
}

struct Grid<'a> {
    options: &'a Options,
    program: &'a Path,
}

impl Grid<'_> {
    /// Works on all items, several at once; stops at the first fault.
    fn each<T: Send>(&self, items: Vec<T>, work: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
        let queue = Mutex::new((items.into_iter(), Ok(())));
        let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
        thread::scope(|scope| {
            for _ in 0..self.options.jobs {
                scope.spawn(|| {
                    loop {
                        let item = lock().0.next();
                        let Some(item) = item else { return };
                        if let Err(error) = work(&item) {
                            let mut queue = lock();
                            queue.0.by_ref().for_each(drop);
                            queue.1 = Err(error);
                        }
                    }
                });
            }
        });
        let (_, done) = queue.into_inner().unwrap_or_else(PoisonError::into_inner);
        done
    }

    /// The warm start that all rows of a seed go on from.
    fn warm_start(&self, seed: u64) -> Result<()> {
        let folder = self.options.out.join(format!("warm-start-{seed}"));
        let done = self.options.out.join(format!("warm-start-{seed}.json"));
        let settings = json!({"seed": seed, "set": self.options.settings});
        if folder.exists() && read(&done).is_some_and(|made| made["settings"] == settings) {
            return Ok(());
        }
        remove(&folder)?;
        let start = Instant::now();
        let mut given = self.options.settings.clone();
        given.push("training.max_steps=0".to_owned());
        let mut command = self.train(&folder, &given);
        let seed_text = seed.to_string();
        command.args(["--config", CONFIG, "--seed", &seed_text]);
        end_well(&mut command, &folder)?;
        let made = json!({"settings": settings, "seconds": start.elapsed().as_secs_f64()});
        fs::write(&done, serde_json::to_vec_pretty(&made)?)?;
        println!("warm start {seed}: {:.0} s", start.elapsed().as_secs_f64());
        Ok(())
    }

    /// One row with one seed, unless its result is there.
    fn run(&self, row: Row, seed: u64) -> Result<()> {
        let settings = self.options.of_row(row);
        if self.result(row, seed).is_some() {
            return Ok(());
        }
        let name = format!("{}-{seed}", row.name);
        let folder = self.options.out.join(&name);
        remove(&folder)?;
        let warm = self.options.out.join(format!("warm-start-{seed}"));
        copy(&warm, &folder)?;
        let start = Instant::now();
        let mut command = self.train(&folder, &settings);
        end_well(command.arg("--resume"), &folder)?;
        let seconds = start.elapsed().as_secs_f64();
        let summary = read(&folder.join("summary.json")).context("a run leaves summary.json")?;
        let outcome = Outcome::of(row.name, seed, &summary)?;
        let metrics = self.options.out.join(format!("{name}.metrics.jsonl"));
        fs::rename(folder.join("metrics.jsonl"), metrics)?;
        let result = json!({"settings": settings, "seconds": seconds, "summary": summary});
        fs::write(self.path(row, seed), serde_json::to_vec_pretty(&result)?)?;
        remove(&folder)?;
        let curve: Vec<String> = outcome
            .curve
            .iter()
            .map(|(_, s)| format!("{s:.3}"))
            .collect();
        println!("{name}: {} in {seconds:.0} s", curve.join(" "));
        Ok(())
    }

    fn path(&self, row: Row, seed: u64) -> PathBuf {
        self.options.out.join(format!("{}-{seed}.json", row.name))
    }

    /// The summary of a run with the same settings, if there was one.
    fn result(&self, row: Row, seed: u64) -> Option<Value> {
        let mut found = read(&self.path(row, seed))?;
        let same = found["settings"] == json!(self.options.of_row(row));
        same.then(|| found["summary"].take())
    }

    fn train(&self, folder: &Path, settings: &[String]) -> Command {
        let mut command = Command::new(self.program);
        command.current_dir(process::root());
        command.args(["train", "--run-dir"]).arg(folder);
        for setting in settings {
            command.args(["--set", setting]);
        }
        command
    }

    /// Prints the table and writes it.
    fn report(&self) -> Result<()> {
        let mut outcomes = Vec::new();
        for row in &self.options.rows {
            for seed in 0..self.options.seeds {
                if let Some(summary) = self.result(*row, seed) {
                    outcomes.push(Outcome::of(row.name, seed, &summary)?);
                }
            }
        }
        let rows: Vec<&str> = self.options.rows.iter().map(|row| row.name).collect();
        let table = table(&rows, &outcomes, &self.options.budgets());
        let markdown = format!(
            "Held-out success in per cent against environment steps: mean (lowest–highest) of {} \
             seeds.\n\n{table}",
            self.options.seeds
        );
        println!("{markdown}");
        fs::write(self.options.out.join("ablation.md"), markdown)?;
        fs::write(self.options.out.join("ablation.csv"), csv(&outcomes))?;
        Ok(())
    }
}

/// Runs the trainer with its output in a log; says where that is if it fails.
fn end_well(command: &mut Command, folder: &Path) -> Result<()> {
    let log = folder.with_extension("log");
    let file = fs::File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
    command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file);
    let status = command.status().context("cannot start the trainer")?;
    ensure!(
        status.success(),
        "a run ended with {status}; see {}",
        log.display()
    );
    Ok(())
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("no {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options> {
        let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Options::parse(&arguments)
    }

    #[test]
    fn the_command_line_is_read() {
        let options = parse("--seeds 2 --steps 600 --rows all,baseline --set a.b=1 --out /x")
            .expect("good options");
        assert_eq!((options.seeds, options.rows.len()), (2, 2));
        assert_eq!(options.out, Path::new("/x"));
        assert_eq!(options.budgets(), [100, 200, 300, 400, 500, 600]);
        let settings = options.of_row(options.rows[1]);
        assert_eq!(settings[2], "evaluation.every_environment_steps=100");
        assert_eq!((settings[3].as_str(), settings.len()), ("a.b=1", 8));
        for (text, expected) in [
            ("--seeds", "needs a value"),
            ("--steps many", "not `many`"),
            ("--jobs 0", "above 0"),
            ("--rows none", "no row `none`"),
            ("--fast", "no option `--fast`"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn settings_name_keys_of_the_base() {
        let text = fs::read_to_string(process::root().join(CONFIG)).expect("the base");
        for row in grid::ROWS {
            for setting in row.settings {
                let (key, _) = setting.split_once('=').expect("KEY=VALUE");
                let section = key.rsplit_once('.').expect("a section").0;
                let switched = text.contains(&format!("[{section}]"));
                assert!(switched || section == "policy.worker", "{setting}");
            }
        }
    }
}
