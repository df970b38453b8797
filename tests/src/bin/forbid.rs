//! Runs a program as on a kernel that lacks system calls: `forbid pidfd_open -- PROGRAM ARGUMENT...`.

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use std::collections::BTreeMap;
use std::env::{args_os, consts::ARCH};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What can be forbidden. New system calls have one number on all architectures.
const CALLS: [(&str, i64); 1] = [("pidfd_open", 434)];

fn main() {
    let mut arguments = args_os().skip(1);
    let named: Vec<_> = arguments.by_ref().take_while(|argument| argument != "--").collect();
    let number = |name| CALLS.iter().find(|(known, _)| name == *known).expect("a system call that can be forbidden").1;
    let rules: BTreeMap<_, _> = named.into_iter().map(|name| (number(name), Vec::new())).collect();
    // What an old kernel says.
    let no_such_call = SeccompAction::Errno(38);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        no_such_call,
        ARCH.try_into().expect("an architecture that filters exist for"),
    );
    let filter: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter of a few numbers is valid");
    apply_filter(&filter).expect("every process may forbid itself what it likes");
    let error = Command::new(arguments.next().expect("a program after --")).args(arguments).exec();
    panic!("the program does not start: {error}");
}
