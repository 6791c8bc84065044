//! Builds the emulation with g++ once per set of sources, and talks to it by pipes.

use std::{
    env, fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

/// Longest time of one call, with room for a loaded machine.
const DEADLINE: Duration = Duration::from_mins(2);

/// Most buffers come back as they went; no answer is longer than this.
const MAX_ANSWER: usize = 1 << 30;

/// Which sources, compiled how.
#[derive(Clone, Copy, Debug)]
pub(super) enum Build {
    /// As they are.
    Plain,
    /// With address and undefined-behaviour sanitizers.
    Sanitized,
    /// With the faults of `mutants.rs`, sanitized.
    Mutants,
}

/// One argument of a kernel.
#[derive(Clone, Debug)]
pub(super) enum Argument {
    Null,
    Value(Vec<u8>),
    /// Bytes that begin `offset` bytes past a multiple of 16. They come back.
    Buffer {
        bytes: Vec<u8>,
        offset: u32,
    },
    /// So many bytes of address space, zeros but for stretches at given bytes, which come back.
    Sparse {
        bytes: u64,
        stretches: Vec<(u64, Vec<u8>)>,
    },
}

/// One launch of a kernel.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) kernel: String,
    pub(super) grid: usize,
    pub(super) threads: u32,
    pub(super) cluster: u32,
    pub(super) shared_bytes: usize,
    /// Of the schedule; 0 runs threads in order.
    pub(super) seed: u32,
    /// Which fault is on; 0 is none.
    pub(super) mutant: i32,
    pub(super) arguments: Vec<Argument>,
}

impl Call {
    pub(super) fn new(kernel: impl Into<String>, grid: usize, threads: u32) -> Self {
        Self {
            kernel: kernel.into(),
            grid,
            threads,
            cluster: 1,
            shared_bytes: 0,
            seed: 1,
            mutant: 0,
            arguments: Vec::new(),
        }
    }

    pub(super) fn value(mut self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref().to_vec();
        self.arguments.push(Argument::Value(bytes));
        self
    }

    pub(super) fn buffer(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        self.arguments.push(Argument::Buffer { bytes, offset: 0 });
        self
    }

    pub(super) fn argument(mut self, argument: Argument) -> Self {
        self.arguments.push(argument);
        self
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend((self.kernel.len() as u32).to_le_bytes());
        out.extend(self.kernel.as_bytes());
        for number in [self.grid as u32, self.threads, self.cluster] {
            out.extend(number.to_le_bytes());
        }
        out.extend((self.shared_bytes as u64).to_le_bytes());
        out.extend(self.seed.to_le_bytes());
        out.extend(self.mutant.to_le_bytes());
        out.extend((self.arguments.len() as u32).to_le_bytes());
        for argument in &self.arguments {
            match argument {
                Argument::Null => out.push(0),
                Argument::Value(bytes) => {
                    out.push(1);
                    out.extend((bytes.len() as u32).to_le_bytes());
                    out.extend(bytes);
                }
                Argument::Buffer { bytes, offset } => {
                    out.push(2);
                    out.extend((bytes.len() as u64).to_le_bytes());
                    out.extend(offset.to_le_bytes());
                    out.extend(bytes);
                }
                Argument::Sparse { bytes, stretches } => {
                    out.push(3);
                    out.extend(bytes.to_le_bytes());
                    out.extend((stretches.len() as u32).to_le_bytes());
                    for (from, bytes) in stretches {
                        out.extend(from.to_le_bytes());
                        out.extend((bytes.len() as u64).to_le_bytes());
                        out.extend(bytes);
                    }
                }
            }
        }
        out
    }

    fn buffer_lengths(&self) -> Vec<usize> {
        let length = |argument: &Argument| match argument {
            Argument::Buffer { bytes, .. } => Some(bytes.len()),
            Argument::Sparse { stretches, .. } => Some(stretches.iter().map(|s| s.1.len()).sum()),
            _ => None,
        };
        self.arguments.iter().filter_map(length).collect()
    }
}

/// What a launch gave.
#[derive(Debug, PartialEq)]
pub(super) struct Done {
    /// Bytes of rows of logits that were read.
    pub(super) read: u64,
    /// Bytes of rows of logits that were written.
    pub(super) written: u64,
    /// The buffers, in the order of the arguments.
    pub(super) buffers: Vec<Vec<u8>>,
}

/// Why there is no result: the emulation's own report, or how it died.
#[derive(Debug)]
pub(super) struct Fault(pub(super) String);

type Answer = Result<Done, Fault>;

/// A running emulation. Ends with its process.
#[derive(Debug)]
pub(super) struct Emulator {
    child: Child,
    calls: Sender<Call>,
    answers: Receiver<Answer>,
}

impl Emulator {
    /// Starts one, or says why the test is skipped.
    #[allow(clippy::print_stdout, reason = "a skipped test says so")]
    pub(super) fn open(build: Build) -> Option<Self> {
        match binary(build) {
            Ok(path) => Some(Self::start(&path)),
            Err(why) => {
                let required = env::var("DART_TEST_REQUIRE").unwrap_or_default();
                let mut names = required.split(',').map(str::trim);
                let promised = names.any(|name| name == "emulation" || name == "all");
                assert!(!promised, "DART_TEST_REQUIRE names emulation, but: {why}");
                println!("skipped: emulation of the CUDA kernels: {why}");
                None
            }
        }
    }

    fn start(path: &Path) -> Self {
        let mut child = Command::new(path)
            // Fibers that a deadlock leaves behind are no leak worth a report.
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (calls, incoming) = channel();
        let (outgoing, answers) = channel();
        let mut input = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut errors = child.stderr.take().unwrap();
        thread::spawn(move || {
            for call in incoming {
                let answer = exchange(&mut input, &mut output, &call).unwrap_or_else(|error| {
                    let mut report = String::new();
                    let _ = errors.read_to_string(&mut report);
                    Err(Fault(format!("the emulation died: {error}\n{report}")))
                });
                if outgoing.send(answer).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            calls,
            answers,
        }
    }

    /// Runs a kernel. After a fault that killed the process, every further call is one.
    pub(super) fn try_run(&mut self, call: &Call) -> Answer {
        self.calls.send(call.clone()).unwrap();
        match self.answers.recv_timeout(DEADLINE) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                let _ = self.child.kill();
                Err(Fault(format!("no answer within {} s", DEADLINE.as_secs())))
            }
            Err(RecvTimeoutError::Disconnected) => Err(Fault("the emulation has ended".into())),
        }
    }

    pub(super) fn run(&mut self, call: &Call) -> Done {
        match self.try_run(call) {
            Ok(done) => done,
            Err(Fault(why)) => panic!("{}: {why}", call.kernel),
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn exchange(input: &mut impl Write, output: &mut impl Read, call: &Call) -> io::Result<Answer> {
    input.write_all(&call.encode())?;
    input.flush()?;
    let mut done = [0];
    output.read_exact(&mut done)?;
    if done[0] == 0 {
        let mut length = [0; 4];
        output.read_exact(&mut length)?;
        let text = read_bytes(output, u32::from_le_bytes(length) as usize)?;
        return Ok(Err(Fault(String::from_utf8_lossy(&text).into_owned())));
    }
    let mut counts = [0; 16];
    output.read_exact(&mut counts)?;
    let lengths = call.buffer_lengths();
    let buffers = lengths
        .into_iter()
        .map(|length| read_bytes(output, length))
        .collect::<io::Result<_>>()?;
    Ok(Ok(Done {
        read: u64::from_le_bytes(counts[..8].try_into().unwrap()),
        written: u64::from_le_bytes(counts[8..].try_into().unwrap()),
        buffers,
    }))
}

fn read_bytes(from: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    assert!(length <= MAX_ANSWER, "an answer of {length} bytes");
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A folder of the crate.
pub(super) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Names and texts of the CUDA sources, sorted.
pub(super) fn sources() -> Vec<(String, String)> {
    texts(&folder("cuda"))
}

fn texts(folder: &Path) -> Vec<(String, String)> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let is_source = |name: &str| {
        let end = name.rsplit('.').next().unwrap_or_default();
        ["cu", "cuh", "cpp", "hpp"].contains(&end)
    };
    let mut files: Vec<_> = names
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| is_source(name))
        .map(|(name, path)| (name, fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// The emulation's binary, built at the first call.
fn binary(build: Build) -> Result<PathBuf, String> {
    static PLAIN: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    static SANITIZED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    static MUTANTS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let sanitize = [
        "-O1",
        "-g",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ];
    let built = match build {
        Build::Plain => PLAIN.get_or_init(|| compile("plain", &["-O2"], sources())),
        Build::Sanitized => SANITIZED.get_or_init(|| compile("sanitized", &sanitize, sources())),
        Build::Mutants => MUTANTS
            .get_or_init(|| compile("mutants", &sanitize, super::mutants::patched(sources()))),
    };
    built.clone()
}

/// Compiles the driver with these kernels. What the same texts gave before is used again.
fn compile(name: &str, flags: &[&str], kernels: Vec<(String, String)>) -> Result<PathBuf, String> {
    let emulation = texts(&folder("emulation"));
    let mut key = flags.concat();
    kernels
        .iter()
        .chain(&emulation)
        .for_each(|(_, text)| key.push_str(text));
    let key = super::ptx::fnv1a(key.as_bytes());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let binary = target.join(format!("emulation-{name}-{key:016x}"));
    if binary.is_file() {
        return Ok(binary);
    }
    let work = target.join(format!("emulation-{name}-{}", std::process::id()));
    fs::create_dir_all(&work).map_err(|error| error.to_string())?;
    for (name, text) in kernels {
        fs::write(work.join(name), text).map_err(|error| error.to_string())?;
    }
    let mut compiler = Command::new("g++");
    compiler
        .args([
            "-std=c++17",
            "-ffp-contract=off",
            "-Wall",
            "-Wextra",
            "-Werror",
        ])
        .args(flags)
        .arg("-I")
        .arg(&work)
        .arg(folder("emulation").join("driver.cpp"))
        .arg("-o")
        .arg(work.join("driver"));
    let output = compiler
        .output()
        .map_err(|error| format!("g++ cannot be started: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "g++ refuses the sources:\n{errors}"
    );
    fs::rename(work.join("driver"), &binary).map_err(|error| error.to_string())?;
    let _ = fs::remove_dir_all(&work);
    Ok(binary)
}
