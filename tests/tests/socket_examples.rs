//! The raw clients of `docs/SOCKET.md` as they stand there, against a scripted socket and against the extension itself.

use leasekeeper_wire::{Acquire, Op, Request};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testkit::programs::{built, repository};

const GRANT: &str = r#"{"lease":7,"valid_ms":17990,"lease_ms":20000,"owner":"own-1","table":"locks","token":null,"waited_ms":12,"later":{}}"#;
const STOP: &str = "stop\n";

/// The contents of the page's code blocks in one language, in order.
fn blocks(fence: &str) -> Vec<String> {
    let page = fs::read_to_string(repository("docs/SOCKET.md")).expect("docs/SOCKET.md is there");
    let opening = format!("\n```{fence}\n");
    let blocks: Vec<_> =
        page.split(&opening).skip(1).map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect();
    assert_eq!(blocks.len(), 2, "the page has a client and its use in {fence}");
    blocks
}

#[derive(Clone, Copy, Debug)]
enum Language {
    Python,
    Node,
}

const LANGUAGES: [Language; 2] = [Language::Python, Language::Node];

impl Language {
    fn interpreter(self) -> &'static str {
        match self {
            Self::Python => "python3",
            Self::Node => "node",
        }
    }

    /// The page's client and its use as one program that locks the key given as its argument.
    fn page(self, directory: &Path) -> PathBuf {
        let (fence, name) = match self {
            Self::Python => ("python", "lock.py"),
            Self::Node => ("js", "lock.mjs"),
        };
        let file = directory.join(name);
        fs::write(&file, blocks(fence).concat()).expect("the scratch directory is ours");
        file
    }

    fn run(self, program: &Path, socket: &Path) -> Output {
        let mut command = Command::new(self.interpreter());
        if matches!(self, Self::Python) {
            command.arg("-I"); // The standard library alone.
        }
        command.arg(program).arg("customer:123").env("LEASEKEEPER_SOCKET", socket).stdin(Stdio::null());
        command.output().unwrap_or_else(|e| panic!("{} is needed for this test: {e}", self.interpreter()))
    }
}

/// What the scripted extension does with a request.
enum Turn {
    /// Sends these lines; `ID` stands for the request's id.
    Say(Vec<&'static str>),
    /// Says nothing and keeps the connection.
    Hang,
    /// Closes the connection.
    Close,
}

type Script = fn(&Op) -> Turn;

/// A socket that answers by a script, and notes what it was asked. Requests must be valid to the letter.
struct Extension {
    socket: PathBuf,
    thread: JoinHandle<Vec<Op>>,
}

impl Extension {
    fn start(directory: &Path, script: impl Fn(&Op) -> Turn + Send + 'static) -> Self {
        let socket = directory.join("lock.sock");
        let listener = UnixListener::bind(&socket).expect("the scratch directory is ours");
        let thread = thread::spawn(move || {
            let mut asked = Vec::new();
            while converse(listener.accept().expect("a listening socket accepts").0, &script, &mut asked) {}
            asked
        });
        Self { socket, thread }
    }

    /// What it was asked, when its client has ended.
    fn asked(self) -> Vec<Op> {
        let mut last = UnixStream::connect(&self.socket).expect("the socket listens until it is stopped");
        last.write_all(STOP.as_bytes()).expect("the thread reads until it is stopped");
        self.thread.join().expect("every request was a valid one")
    }
}

/// Serves one connection. False when it was the one that stops the extension.
fn converse(stream: UnixStream, script: &impl Fn(&Op) -> Turn, asked: &mut Vec<Op>) -> bool {
    let mut writer = stream.try_clone().expect("a socket can be cloned");
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return true };
        if line == STOP.trim_end() {
            return false;
        }
        let request = Request::decode(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {}", e.message));
        let turn = script(&request.op);
        asked.push(request.op);
        match turn {
            Turn::Say(lines) => {
                for line in lines {
                    let line = line.replace("ID", &request.id.to_string()).replace("GRANT", GRANT);
                    if writeln!(writer, "{line}").is_err() {
                        return true; // The client left without listening to the end.
                    }
                }
            }
            Turn::Hang => {}
            Turn::Close => return true,
        }
    }
    true
}

fn granted(op: &Op) -> Turn {
    Turn::Say(match op {
        Op::Check { lease: 7 } => vec![r#"{"id":ID,"ok":{"valid_ms":15000}}"#],
        Op::Release { lease: 7 } => vec![r#"{"id":ID,"ok":{"metrics":{"write_requests":2}}}"#],
        Op::Acquire(_) => vec![r#"{"id":ID,"ok":GRANT}"#],
        other => panic!("unexpected: {other:?}"),
    })
}

/// Runs the page's program in a language against a script: its exit, output, error output, and what was asked.
fn page(language: Language, script: impl Fn(&Op) -> Turn + Send + 'static) -> (bool, String, String, Vec<Op>) {
    let directory = tempfile::tempdir().expect("a scratch directory can be made");
    let extension = Extension::start(directory.path(), script);
    let output = language.run(&language.page(directory.path()), &extension.socket);
    told(output, extension)
}

fn told(output: Output, extension: Extension) -> (bool, String, String, Vec<Op>) {
    let text = |bytes| String::from_utf8(bytes).expect("programs print UTF-8");
    (output.status.success(), text(output.stdout), text(output.stderr), extension.asked())
}

fn acquire() -> Op {
    Op::Acquire(Acquire { key: "customer:123".into(), wait_ms: Some(2000), ..Acquire::default() })
}

const CHECK: Op = Op::Check { lease: 7 };
const RELEASE: Op = Op::Release { lease: 7 };

#[test]
fn a_lock_is_held_checked_and_given_back_whatever_else_the_extension_says() {
    for language in LANGUAGES {
        let (ok, out, err, asked) = page(language, |op| match op {
            Op::Acquire(_) => Turn::Say(vec![
                r#"{"event":"renewed","lease":7}"#,
                r#"{"event":"from_the_future","lease":7,"id":1}"#,
                r#"{"hint":"ignore me"}"#,
                r#"{"id":99,"ok":{}}"#,
                r#"{"id":ID,"ok":GRANT,"more":1}"#,
                r#"{"event":"danger","lease":7}"#,
            ]),
            op => granted(op),
        });
        assert!(ok, "{language:?}: {err}");
        assert!(out.starts_with("held by own-1, valid for 1"), "{language:?}: {out}");
        assert_eq!(asked, [acquire(), CHECK, RELEASE], "{language:?}");
    }
}

#[test]
fn an_acquire_that_fails_says_its_code_and_asks_nothing_more() {
    let scripts: [(&str, Script); 3] = [
        ("busy: held elsewhere", |_| {
            Turn::Say(vec![
                r#"{"id":ID,"error":{"code":"busy","message":"held elsewhere","retry_after_ms":900,"holder":{"owner":"o"}}}"#,
            ])
        }),
        // An id of null: the line could not be read at all.
        ("protocol: not JSON", |_| Turn::Say(vec![r#"{"id":null,"error":{"code":"protocol","message":"not JSON"}}"#])),
        ("extension_missing: ", |_| Turn::Close),
    ];
    for language in LANGUAGES {
        for (expected, script) in scripts {
            let (ok, out, err, asked) = page(language, script);
            assert!(!ok && out.is_empty(), "{language:?}, {expected}: {out}");
            assert!(err.contains(&format!("LockError: {expected}")), "{language:?}, {expected}: {err}");
            assert_eq!(asked, [acquire()], "{language:?}");
        }
    }
}

#[test]
fn without_an_extension_the_error_is_extension_missing() {
    for language in LANGUAGES {
        let directory = tempfile::tempdir().expect("a scratch directory can be made");
        let output = language.run(&language.page(directory.path()), &directory.path().join("nothing.sock"));
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && err.contains("LockError: extension_missing: "), "{language:?}: {err}");
    }
}

#[test]
fn a_loss_is_an_error_and_the_lock_is_still_given_back() {
    let lost = r#"{"id":ID,"error":{"code":"lost","message":"the row was taken over","reason":"stolen"}}"#;
    for language in LANGUAGES {
        for at in [CHECK, RELEASE] {
            let (ok, _, err, asked) = page(language, {
                let at = at.clone();
                move |op| if *op == at { Turn::Say(vec![lost]) } else { granted(op) }
            });
            assert!(!ok && err.contains("LockError: lost: the row was taken over"), "{language:?} at {at:?}: {err}");
            assert_eq!(asked, [acquire(), CHECK, RELEASE], "{language:?} at {at:?}");
        }
    }
}

#[test]
fn a_connection_that_ends_under_a_lease_is_a_loss() {
    for language in LANGUAGES {
        for at in [CHECK, RELEASE] {
            let (ok, _, err, _) = page(language, {
                let at = at.clone();
                move |op| if *op == at { Turn::Close } else { granted(op) }
            });
            assert!(!ok && err.contains("LockError: lost: "), "{language:?} at {at:?}: {err}");
        }
    }
}

#[test]
fn work_that_is_done_succeeds_though_its_release_is_not_confirmed() {
    let scripts: [Script; 2] = [
        |op| match op {
            Op::Release { .. } => {
                Turn::Say(vec![r#"{"id":ID,"error":{"code":"release_unconfirmed","message":"no answer"}}"#])
            }
            op => granted(op),
        },
        |op| if *op == RELEASE { Turn::Hang } else { granted(op) },
    ];
    for language in LANGUAGES {
        for script in scripts {
            let (ok, out, err, asked) = page(language, script);
            assert!(ok, "{language:?}: {err}");
            assert!(out.contains("the work is done; release_unconfirmed: no answer"), "{language:?}: {out}");
            assert_eq!(asked, [acquire(), CHECK, RELEASE], "{language:?}");
        }
    }
}

/// The extension as a process, with rows in its memory, ended when dropped.
struct Real(Child);

impl Real {
    fn start(socket: &Path) -> Self {
        let mut command = Command::new(built("leasekeeper"));
        command.env_clear().env("LEASEKEEPER_STORE", "memory").env("LEASEKEEPER_TABLE", "locks");
        command.env("LEASEKEEPER_SOCKET", socket).stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::null());
        let real = Self(command.spawn().expect("the extension starts"));
        let deadline = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(socket).is_err() {
            assert!(Instant::now() < deadline, "the extension does not listen at {}", socket.display());
            thread::sleep(Duration::from_millis(5));
        }
        real
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        // It has ended already, or ends now; either way it is waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_extension_itself_serves_the_page_and_tells_the_second_comer_that_it_is_busy() {
    for language in LANGUAGES {
        let directory = tempfile::tempdir().expect("a scratch directory can be made");
        let socket = directory.path().join("leasekeeper/lock.sock");
        let _real = Real::start(&socket);

        let output = language.run(&language.page(directory.path()), &socket);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && out.starts_with("held by "), "{language:?}: {out}{err}");

        // Given back above, so it can be had at once; and while it is held, nobody else gets it.
        let mut holder = UnixStream::connect(&socket).expect("the extension listens");
        writeln!(holder, r#"{{"v":1,"id":1,"op":"acquire","key":"customer:123","wait_ms":0}}"#).expect("it reads");
        let mut grant = String::new();
        BufReader::new(&holder).read_line(&mut grant).expect("it answers");
        assert!(grant.contains(r#""ok":{"#), "{language:?}: {grant}");
        let output = language.run(&language.page(directory.path()), &socket);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && err.contains("LockError: busy: "), "{language:?}: {err}");

        // The connection's end gives it back.
        drop(holder);
        let output = language.run(&language.page(directory.path()), &socket);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{language:?}: {err}");
    }
}
