//! The Lambda sandbox itself, with a stand-in extension: each phase that the other tests build on is seen here.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::sandbox::{Builder, Fault, Outcome, Program, Role, Sandbox, ShutdownReason};

fn function(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("functions").join(name)
}

fn standin(wishes: &str) -> Builder {
    Sandbox::builder()
        .extension(Program::python(function("python/extension.py")))
        .runtime(Program::python(function("python/runtime.py")))
        .env("STANDIN", wishes)
}

fn steps(steps: Value) -> Value {
    json!({"steps": steps})
}

fn nothing() -> Value {
    steps(json!([]))
}

fn kind(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Error { kind, .. } => kind,
        other => panic!("an error was expected, not {other:?}"),
    }
}

/// The kernel's one-letter state of a process; `None` once it is gone.
fn process_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[tokio::test]
async fn the_runtime_starts_once_the_extension_has_registered() {
    let env = standin("invoke,register-late").start().await.unwrap();
    let registering = env.wait_for_log(Role::Extension, "registering").await.unwrap();
    let first_of_runtime = env.wait_for_log(Role::Runtime, "runtime sees").await.unwrap();
    assert!(registering.at < first_of_runtime.at);
}

#[tokio::test]
async fn the_extension_does_not_see_what_lambda_hides_from_it() {
    let env = standin("").env("AWS_XRAY_TEST", "1").env("SETTING", "1").start().await.unwrap();
    let extension = env.wait_for_log(Role::Extension, "extension sees").await.unwrap().text;
    let runtime = env.wait_for_log(Role::Runtime, "runtime sees").await.unwrap().text;
    for name in ["_HANDLER", "LAMBDA_TASK_ROOT", "AWS_LAMBDA_LOG_GROUP_NAME", "AWS_EXECUTION_ENV", "AWS_XRAY_TEST"] {
        assert!(runtime.contains(&format!("'{name}'")), "{name} in {runtime}");
        assert!(!extension.contains(&format!("'{name}'")), "{name} in {extension}");
    }
    for name in ["AWS_LAMBDA_RUNTIME_API", "AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_INITIALIZATION_TYPE", "SETTING"] {
        assert!(runtime.contains(name) && extension.contains(name), "{name}");
    }
}

#[tokio::test]
async fn invoke_goes_to_both_and_the_response_does_not_wait_for_the_extension() {
    let env = standin("invoke,linger=400").start().await.unwrap();
    let done = env.invoke(nothing()).await;
    assert_eq!(done.outcome, Outcome::Response("[]".into()));
    assert_eq!(done.afterwards, None);
    env.wait_for_log(Role::Extension, &format!("invoke {}", done.id)).await.unwrap();
    let lingered = done.over - done.answered;
    assert!(lingered >= Duration::from_millis(300), "idle only after the extension's work, {lingered:?}");
}

#[tokio::test]
async fn an_extension_without_invoke_is_not_waited_for_and_not_told() {
    let env = standin("linger=2000").start().await.unwrap();
    let done = env.invoke(nothing()).await;
    assert!(done.over - done.answered < Duration::from_millis(1000));
    assert!(!env.log_text(Role::Extension).contains("invoke"));
}

#[tokio::test]
async fn idle_processes_are_stopped_and_the_next_invocation_thaws_them() {
    let env = standin("invoke").freeze(true).start().await.unwrap();
    for round in ["first", "second"] {
        assert!(env.is_frozen());
        for role in [Role::Extension, Role::Runtime] {
            assert_eq!(process_state(env.pid(role).unwrap()), Some('T'));
        }
        let call = env.begin(steps(json!([{"do": "say", "text": round}, {"do": "sleep", "ms": 200}])));
        env.wait_for_log(Role::Runtime, round).await.unwrap();
        assert!(!env.is_frozen());
        assert_eq!(call.over().await.outcome, Outcome::Response("[]".into()));
    }
    assert_eq!(env.starts(Role::Runtime), 1);
}

#[tokio::test]
async fn a_timeout_kills_the_runtime_first_then_shuts_down_and_starts_both_anew() {
    let env = standin("invoke").timeout(Duration::from_secs(2)).start().await.unwrap();
    std::fs::write(env.tmp().join("kept"), "x").unwrap();
    let first = env.pid(Role::Runtime).unwrap();
    let done = env.invoke(steps(json!([{"do": "sleep", "ms": 60_000}]))).await;
    assert_eq!(done.outcome, Outcome::TimedOut);
    assert_eq!(process_state(first), None);
    let told = env.wait_for_log(Role::Extension, "shutdown timeout").await.unwrap();
    let left: i64 = told.text.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((1000..=2000).contains(&left), "{left} ms to the deadline");
    let shutdown = env.shutdowns()[0];
    assert_eq!((shutdown.reason, shutdown.delivered, shutdown.killed), (ShutdownReason::Timeout, true, false));
    assert_eq!(shutdown.code, Some(0));

    let next = env.invoke(steps(json!([{"do": "tmp"}]))).await;
    assert!(next.outcome.json()[0][0].as_str().unwrap().ends_with("/kept"));
    assert_eq!((env.starts(Role::Extension), env.starts(Role::Runtime)), (2, 2));
}

#[tokio::test]
async fn an_extension_that_stays_after_shutdown_is_killed_at_its_deadline() {
    let env = standin("invoke,ignore-shutdown").start().await.unwrap();
    let shutdown = env.shutdown().await.unwrap();
    assert_eq!((shutdown.reason, shutdown.delivered, shutdown.killed), (ShutdownReason::Spindown, true, true));
    assert!(shutdown.took > Duration::from_millis(1200) && shutdown.took < Duration::from_millis(2500));
    assert_eq!(shutdown.code, None);
}

#[tokio::test]
async fn an_extension_that_is_not_parked_never_sees_shutdown() {
    let env = standin("invoke,linger=60000").timeout(Duration::from_millis(1500)).start().await.unwrap();
    let done = env.invoke(nothing()).await;
    assert_eq!(done.outcome, Outcome::Response("[]".into()));
    assert_eq!(done.afterwards, Some(Outcome::TimedOut));
    let shutdown = env.shutdowns()[0];
    assert_eq!((shutdown.delivered, shutdown.killed), (false, true));
}

#[tokio::test]
async fn spin_down_ends_both_with_time_to_spare() {
    let env = standin("invoke").freeze(true).start().await.unwrap();
    env.invoke(nothing()).await;
    let shutdown = env.shutdown().await.unwrap();
    assert_eq!((shutdown.killed, shutdown.code), (false, Some(0)));
    env.wait_for_log(Role::Extension, "shutdown spindown").await.unwrap();
    assert_eq!((env.pid(Role::Extension), env.pid(Role::Runtime)), (None, None));
    assert!(env.shutdown().await.is_none());
}

#[tokio::test]
async fn a_runtime_that_exits_or_is_killed_fails_the_invocation_and_resets() {
    let env = standin("invoke").start().await.unwrap();
    let exited = env.invoke(steps(json!([{"do": "exit", "code": 3}]))).await;
    assert_eq!(kind(&exited.outcome), "Runtime.ExitError");
    let mut call = env.begin(steps(json!([{"do": "say", "text": "ready"}, {"do": "sleep", "ms": 60_000}])));
    env.wait_for_log(Role::Runtime, "ready").await.unwrap();
    env.kill_runtime().unwrap();
    assert_eq!(kind(&call.outcome().await), "Runtime.ExitError");
    call.over().await;
    let reasons: Vec<_> = env.shutdowns().iter().map(|shutdown| shutdown.reason).collect();
    assert_eq!(reasons, [ShutdownReason::Failure, ShutdownReason::Failure]);
    assert_eq!(env.invoke(nothing()).await.outcome, Outcome::Response("[]".into()));
    assert_eq!(env.starts(Role::Runtime), 3);
}

#[tokio::test]
async fn an_extension_that_exits_outside_shutdown_fails_the_invocation() {
    let env = standin("invoke,exit-on-invoke").start().await.unwrap();
    let done = env.invoke(steps(json!([{"do": "sleep", "ms": 60_000}]))).await;
    assert_eq!(kind(&done.outcome), "Extension.Crash");
    assert!(env.shutdowns().is_empty());
    let again = env.invoke(steps(json!([{"do": "sleep", "ms": 60_000}]))).await;
    assert_eq!(kind(&again.outcome), "Extension.Crash");
    assert_eq!(env.starts(Role::Extension), 2);
}

#[tokio::test]
async fn a_function_error_is_told_and_nothing_is_reset() {
    let env = standin("invoke").start().await.unwrap();
    assert_eq!(kind(&env.invoke(steps(json!([{"do": "fail"}]))).await.outcome), "RuntimeError");
    assert_eq!(env.invoke(nothing()).await.outcome, Outcome::Response("[]".into()));
    assert_eq!(env.starts(Role::Runtime), 1);
}

#[tokio::test]
async fn invoke_comes_before_or_after_the_runtimes_event_as_set() {
    let env = standin("invoke").start().await.unwrap();
    for offset in [-50, 50] {
        env.set_invoke_offset(offset);
        let text = format!("handler at {offset}");
        let done = env.invoke(steps(json!([{"do": "say", "text": text}, {"do": "sleep", "ms": 300}]))).await;
        let handler = env.wait_for_log(Role::Runtime, &text).await.unwrap().at;
        let extension = env.wait_for_log(Role::Extension, &format!("invoke {}", done.id)).await.unwrap().at;
        assert_eq!(extension > handler, offset > 0, "INVOKE at {offset} ms");
    }
}

#[tokio::test]
async fn managed_instances_refuse_invoke_subscribers() {
    let refused = standin("invoke").managed_instances(2).start().await.unwrap_err().to_string();
    assert!(refused.contains("Extension.Crash") && refused.contains("refused 403"), "{refused}");
}

#[tokio::test]
async fn managed_instances_run_invocations_side_by_side_and_a_timeout_kills_nothing() {
    let env = standin("").managed_instances(3).timeout(Duration::from_millis(1000)).start().await.unwrap();
    let runtime = env.pid(Role::Runtime);
    let slow = env.begin(steps(json!([{"do": "sleep", "ms": 1500}, {"do": "say", "text": "ran on"}])));
    let quick = env.invoke(steps(json!([{"do": "sleep", "ms": 100}]))).await;
    assert_eq!(quick.outcome, Outcome::Response("[]".into()));
    let slow = slow.over().await;
    assert_eq!(slow.outcome, Outcome::TimedOut);
    assert!(quick.answered < slow.answered, "both ran at once");
    env.wait_for_log(Role::Runtime, "ran on").await.unwrap();
    assert_eq!(env.pid(Role::Runtime), runtime);
    assert!(env.shutdowns().is_empty());
}

#[tokio::test]
async fn managed_instances_fail_all_invocations_of_a_dead_runtime_and_reset_once() {
    let env = standin("").managed_instances(3).start().await.unwrap();
    let sleep = || steps(json!([{"do": "say", "text": "asleep"}, {"do": "sleep", "ms": 60_000}]));
    let calls = [env.begin(sleep()), env.begin(sleep())];
    env.wait_for_log(Role::Runtime, "asleep").await.unwrap();
    env.kill_runtime().unwrap();
    for call in calls {
        assert_eq!(kind(&call.over().await.outcome), "Runtime.ExitError");
    }
    assert_eq!(env.shutdowns().len(), 1);
    assert_eq!(env.invoke(nothing()).await.outcome, Outcome::Response("[]".into()));
}

#[tokio::test]
async fn an_end_is_noted_at_once_and_acted_on_when_the_platform_notices() {
    let notice = Duration::from_millis(300);
    let env = standin("").notice(notice).start().await.unwrap();
    let runtime = env.pid(Role::Runtime);
    let call = env.begin(steps(json!([{"do": "say", "text": "asleep"}, {"do": "sleep", "ms": 60_000}])));
    env.wait_for_log(Role::Runtime, "asleep").await.unwrap();
    env.kill_runtime().unwrap();
    let call = call.over().await;
    let (end, shutdown) = (env.ends()[0], env.shutdowns()[0]);
    assert_eq!((end.role, Some(end.pid)), (Role::Runtime, runtime));
    assert!(call.answered >= end.at + notice && shutdown.at >= call.answered, "{end:?} {call:?} {shutdown:?}");
    let next = env.invoke(nothing()).await;
    assert!(call.init.is_zero() && !next.init.is_zero() && next.asked + next.init <= next.delivered, "{next:?}");
}

#[tokio::test]
async fn torn_and_unknown_replies_reach_the_extension() {
    let env = standin("invoke").start().await.unwrap();
    for (fault, seen) in [
        (Fault::Garbage, "got 200 <html>"),
        (Fault::UnknownEvent, "RESTORE"),
        (Fault::Status(500), "got 500"),
        (Fault::Closed, "torn RemoteDisconnected"),
        (Fault::Torn, "torn IncompleteRead"),
    ] {
        env.inject(fault);
        env.faults_sent().await.unwrap();
        env.wait_for_log(Role::Extension, seen).await.unwrap();
    }
    env.extension_parked().await.unwrap();
    assert_eq!(env.invoke(nothing()).await.outcome, Outcome::Response("[]".into()));
}

#[tokio::test]
async fn a_refused_registration_reaches_the_extension() {
    let refused = standin("").register_fault(Fault::Status(500)).start().await.unwrap_err().to_string();
    assert!(refused.contains("refused 500"), "{refused}");
}

#[tokio::test]
async fn both_processes_are_pinned_to_one_cpu() {
    let env = standin("").one_cpu().start().await.unwrap();
    let extension = env.wait_for_log(Role::Extension, "cpus [").await.unwrap().text;
    let runtime = env.wait_for_log(Role::Runtime, "cpus [").await.unwrap().text;
    let cpus = |text: &str| text.split_once("cpus ").unwrap().1.to_owned();
    assert_eq!(cpus(&extension), cpus(&runtime));
    assert!(!cpus(&extension).contains(','), "{extension}");
}

#[tokio::test]
async fn dropping_the_sandbox_leaves_no_process() {
    let env = standin("invoke").freeze(true).start().await.unwrap();
    let pids = [env.pid(Role::Extension).unwrap(), env.pid(Role::Runtime).unwrap()];
    drop(env);
    for pid in pids {
        // SIGKILL is sent by then; the kernel takes a moment to act on it.
        let gone = async {
            while process_state(pid).is_some_and(|state| state != 'Z') {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(2), gone).await.expect("the process is gone");
    }
}
