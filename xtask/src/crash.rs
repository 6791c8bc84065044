//! `crash`: kills training by `kill -9` again and again, and proves that nothing is lost and nothing
//! is trained on twice.
//!
//! Each seed is one kill: at a named fault point (the process ends itself there) or after a random
//! time. Runs of several kills share a folder, so that lineages branch off lineages. After each kill
//! three witnesses are compared: `events.jsonl`, to which the process had told what it acknowledged
//! and trained on; the store, read by `dart-rl inspect`; and the process table.

mod witness;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use self::witness::Witness;
use crate::process;

/// Kills that share a run folder.
const KILLS_PER_RUN: u64 = 10;

/// A life that does not reach its fault point is killed after this long.
const LONGEST_LIFE: Duration = Duration::from_secs(25);

/// How long a clean end may take.
const LONGEST_END: Duration = Duration::from_mins(3);

/// Marks every process of a run, descendants included.
const LABEL: &str = "DART_CRASH_LABEL";

/// Every fault point, and how often one passes it in a short life at most.
pub(crate) const POINTS: &[(&str, u64)] = &[
    ("batch.claimed", 6),
    ("batch.committed", 6),
    ("blob.written", 40),
    ("checkpoint.filled", 4),
    ("checkpoint.manifest-written", 4),
    ("checkpoint.renamed", 4),
    ("checkpoint.retired", 4),
    ("checkpoint.retiring", 3),
    ("checkpoint.set-aside", 1),
    ("ingest.stored", 60),
    ("latest.swapped", 4),
    ("latest.written", 4),
    ("learner.stepped", 6),
    ("prune.committed", 2),
    ("put.images-written", 60),
    ("run.learner-saved", 4),
    ("run.pointer-written", 4),
    ("seal.begin", 4),
    ("seal.committed", 4),
    ("seal.uses-written", 4),
    ("write.before-commit", 60),
    ("write.committed", 60),
];

/// Settings that make lives short and checkpoints frequent. Images are files, and few stay.
const SETTINGS: &[&str] = &[
    "environment.families=[\"click-button\",\"slider\"]",
    "warm_start.max_steps=4",
    "warm_start.checkpoint_every_seconds=0.2",
    "warm_start.pool_seeds=2",
    "curation.groups_per_batch=2",
    "curation.max_groups_per_batch=2",
    "curation.pool.from_rollouts=true",
    "rollout.environments=8",
    "store.inline_kilobytes=0",
    "store.cache_megabytes=1",
    "store.retention={ kind = \"newest\", trajectories = 50 }",
    "evaluation.splits=[]",
    "training.checkpoint_every=2",
    "training.keep_checkpoints=2",
    "training.log_episodes=true",
    "training.max_seconds=36000",
];

/// How a life ends.
#[derive(Debug)]
enum Death {
    At(&'static str, u64),
    After(Duration),
}

/// SplitMix64: the same seed gives the same kills.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn death(&mut self) -> Death {
        if self.below(3) == 0 {
            return Death::After(Duration::from_millis(200 + self.below(5_000)));
        }
        let (point, most) = POINTS[self.below(POINTS.len() as u64) as usize];
        Death::At(point, 1 + self.below(most))
    }
}

/// What all runs together came to.
#[derive(Debug, Default)]
struct Tally {
    kills: u64,
    at_points: BTreeMap<&'static str, u64>,
    at_times: u64,
    acknowledged: u64,
    batches: u64,
    taken_in: u64,
    lost: u64,
    twice: u64,
    mismatched: u64,
    damaged: u64,
    left_running: u64,
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut seeds = 20;
    let mut first = 0;
    let mut program = None;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .with_context(|| format!("{argument} needs a value"))
        };
        match argument.as_str() {
            "--seeds" => seeds = value()?.parse().context("--seeds is a number")?,
            "--first-seed" => first = value()?.parse().context("--first-seed is a number")?,
            "--program" => program = Some(PathBuf::from(value()?)),
            other => bail!("no option `{other}`: --seeds N, --first-seed N, --program FILE"),
        }
    }
    let program = program.map_or_else(build, Ok)?;
    let start = Instant::now();
    let folder = process::root().join("target/crash");
    let mut tally = Tally::default();
    let mut seed = first;
    while seed < first + seeds {
        let kills = KILLS_PER_RUN.min(first + seeds - seed);
        let run = Run::new(&program, &folder, seed)?;
        run.kill_and_resume(seed..seed + kills, &mut tally)
            .with_context(|| {
                format!(
                    "seeds from {seed}; the run is kept in {}",
                    run.dir.display()
                )
            })?;
        fs::remove_dir_all(&run.dir)?;
        seed += kills;
    }
    report(&tally, start.elapsed());
    let failures = tally.lost + tally.twice + tally.mismatched + tally.damaged + tally.left_running;
    ensure!(failures == 0, "{failures} failures; see above");
    Ok(())
}

/// The trainer with its fault points, in the profile whose build is quickest.
fn build() -> Result<PathBuf> {
    process::run(process::cargo().args(["build", "--package", "dart-cli", "--bin", "dart-rl"]))?;
    let metadata = process::output("cargo", &["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata.context("`cargo metadata` failed")?)?;
    let target = metadata["target_directory"].as_str();
    let target = target.context("metadata names the target directory")?;
    Ok(Path::new(target).join("debug/dart-rl"))
}

struct Run<'a> {
    program: &'a Path,
    dir: PathBuf,
    label: String,
    seed: u64,
}

impl<'a> Run<'a> {
    fn new(program: &'a Path, folder: &Path, seed: u64) -> Result<Self> {
        let dir = folder.join(format!("run-{seed}"));
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(folder)?;
        Ok(Self {
            program,
            label: format!("{}-{seed}", std::process::id()),
            dir,
            seed,
        })
    }

    fn kill_and_resume(&self, seeds: std::ops::Range<u64>, tally: &mut Tally) -> Result<()> {
        for seed in seeds {
            let death = Draw(seed).death();
            let at_point = self.live(&death)?;
            tally.kills += 1;
            match (&death, at_point) {
                (Death::At(point, _), true) => *tally.at_points.entry(*point).or_default() += 1,
                _ => tally.at_times += 1,
            }
            self.check(tally, false)
                .with_context(|| format!("after the kill of seed {seed}: {death:?}"))?;
        }
        let steps = Witness::read(&self.dir).last_version() + 2;
        let mut child = self.trainer(Some(steps))?.spawn().context("cannot start")?;
        let ended = wait(&mut child, LONGEST_END)?;
        ensure!(
            ended.is_some_and(|status| status.success()),
            "the last resume failed: {ended:?}"
        );
        self.check(tally, true)
    }

    fn trainer(&self, max_steps: Option<u64>) -> Result<Command> {
        let mut command = Command::new(self.program);
        command.current_dir(process::root()).arg("train");
        command.arg("--run-dir").arg(&self.dir);
        if self.dir.join("config.toml").exists() {
            command.arg("--resume");
        } else {
            command.args([
                "--config",
                "configs/ci.toml",
                "--seed",
                &self.seed.to_string(),
            ]);
            for setting in SETTINGS {
                command.args(["--set", setting]);
            }
        }
        if let Some(steps) = max_steps {
            command.args(["--set", &format!("training.max_steps={steps}")]);
        }
        fs::create_dir_all(self.dir.parent().unwrap_or(&self.dir))?;
        let log = self.dir.with_extension("log");
        let log = fs::OpenOptions::new().create(true).append(true).open(log)?;
        command.env(LABEL, &self.label).env_remove("DART_FAULT");
        command.stdout(Stdio::null()).stderr(log).process_group(0);
        Ok(command)
    }

    /// One life. `true` if it ended at its fault point.
    fn live(&self, death: &Death) -> Result<bool> {
        let mut command = self.trainer(None)?;
        let patience = match death {
            Death::At(point, count) => {
                command.env("DART_FAULT", format!("{point}:{count}"));
                LONGEST_LIFE
            }
            Death::After(time) => *time,
        };
        let mut child = command.spawn().context("cannot start the trainer")?;
        if let Some(status) = wait(&mut child, patience)? {
            use std::os::unix::process::ExitStatusExt;
            let log = self.dir.with_extension("log");
            ensure!(
                status.signal() == Some(9),
                "the trainer ended by itself with {status}; {} says why",
                log.display()
            );
            return Ok(true);
        }
        child.kill()?;
        child.wait()?;
        Ok(false)
    }

    /// Compares the witnesses.
    fn check(&self, tally: &mut Tally, whole: bool) -> Result<()> {
        let left = self.left_running();
        if !left.is_empty() {
            println!("still running after the kill: {left:?}");
            tally.left_running += left.len() as u64;
        }
        if !self.dir.join("store/made").exists() {
            // Killed before the store was made: nothing can have been acknowledged.
            return Ok(());
        }
        let witness = Witness::read(&self.dir);
        let stored = self.stored()?;
        let lost = witness
            .acknowledged
            .iter()
            .filter(|id| !stored.contains_key(*id));
        for id in lost {
            println!("lost: {id}");
            tally.lost += 1;
        }
        tally.twice += witness.trained_twice();
        let found = self.inspect(&["--verify", "--json"])?;
        let found: Value = serde_json::from_str(&found)?;
        let problems = found["audit"]["problems"].as_array().map_or(0, Vec::len);
        let torn = found["checkpoints"].as_array();
        let torn = torn.map_or(0, |all| all.iter().filter(|c| !c[1].is_null()).count());
        if problems + torn > 0 {
            println!("damaged: {found}");
            tally.damaged += (problems + torn) as u64;
        }
        let pointer = found["store"]["checkpoint"].as_u64();
        tally.mismatched += witness.mismatches(&stored, pointer.unwrap_or(0));
        if whole {
            tally.acknowledged += witness.acknowledged.len() as u64;
            tally.batches += witness.lineage.len() as u64;
            tally.taken_in += witness.taken_in;
        }
        Ok(())
    }

    /// Id → the batch that used it.
    fn stored(&self) -> Result<BTreeMap<String, Option<u64>>> {
        let mut stored = BTreeMap::new();
        for line in self.inspect(&["--trajectories"])?.lines() {
            let row: Value = serde_json::from_str(line)?;
            let id = row["id"].as_str().context("a row has an id")?;
            stored.insert(id.to_owned(), row["used_in"].as_u64());
        }
        Ok(stored)
    }

    fn inspect(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(self.program);
        command
            .arg("inspect")
            .arg("--run-dir")
            .arg(&self.dir)
            .args(arguments);
        let output = command.output().context("cannot start inspect")?;
        ensure!(
            !output.stdout.is_empty() || output.status.success(),
            "inspect failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Processes that carry this run's label, after giving them a moment to die.
    fn left_running(&self) -> Vec<u32> {
        let wanted = format!("{LABEL}={}", self.label);
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            let found = labelled(wanted.as_bytes());
            if found.is_empty() || Instant::now() > end {
                return found;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn labelled(wanted: &[u8]) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        // A process that has ended meanwhile has no environment.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == wanted)
    })
    .collect()
}

/// The exit status, or `None` if the time is over.
fn wait(child: &mut Child, patience: Duration) -> Result<Option<std::process::ExitStatus>> {
    let end = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn report(tally: &Tally, took: Duration) {
    for (point, count) in &tally.at_points {
        println!("  {point:<30}{count:>5}");
    }
    println!("  {:<30}{:>5}", "after a random time", tally.at_times);
    println!(
        "{} kills in {} s: {} trajectories acknowledged, {} lost; {} batches in the lineages, \
         {} trajectories trained twice; {} used in one witness alone; {} damaged; {} processes left; \
         {} trajectories taken in after a crash",
        tally.kills,
        took.as_secs(),
        tally.acknowledged,
        tally.lost,
        tally.batches,
        tally.twice,
        tally.mismatched,
        tally.damaged,
        tally.left_running,
        tally.taken_in,
    );
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_point_is_in_the_sources_and_in_the_table() {
        let mut found = BTreeSet::new();
        for part in ["dart-curation/src", "dart-trainer/src", "dart-cli/src"] {
            collect(&process::root().join(part), &mut found);
        }
        let table: BTreeSet<String> = POINTS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(found, table);
    }

    fn collect(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect(&path, found);
                continue;
            }
            let text = fs::read_to_string(path).expect("a source file");
            let calls = text.split("fault::point(\"").skip(1);
            found.extend(calls.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
}
