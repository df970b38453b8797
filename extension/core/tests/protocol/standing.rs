//! How an invocation stands with its locks, from the first acquire to the last row that is given back.

use crate::common::{MS, SECOND};
use crate::script::{Script, acquire, one_send, row, sends, shows};
use leasekeeper_core::{Acquire, Answer, Input, LostReason, Standing};

const SCOPE: u64 = 1;
const OTHER: u64 = 2;

fn ask(lease: u64, scope: u64) -> Input<u64> {
    Input::Acquire(Acquire { scope: Some(scope), ..acquire(lease, 100 + lease, 3_000, SECOND) })
}

#[test]
fn a_lock_counts_from_its_acquire_until_its_row_is_given_back_and_the_greatest_of_all_counts() {
    let mut script = Script::new();
    assert_eq!(script.core.standing(&SCOPE), Standing::Idle);
    let put = one_send(&script.give(ask(1, SCOPE)));
    assert_eq!(script.core.standing(&SCOPE), Standing::Locked, "it is waited for");
    script.answer(&put, Answer::Done);
    let second = one_send(&script.give(ask(2, SCOPE)));
    script.answer(&second, Answer::Done);
    let delete = one_send(&script.give(Input::Release(1)));
    assert_eq!(script.core.standing(&SCOPE), Standing::Locked, "the other is held");
    let other = one_send(&script.give(Input::Release(2)));
    assert_eq!(script.core.standing(&SCOPE), Standing::GivingBack);
    script.answer(&delete, Answer::Done);
    assert_eq!(script.core.standing(&SCOPE), Standing::GivingBack);
    script.answer(&other, Answer::Done);
    assert_eq!((script.core.standing(&SCOPE), script.core.standing(&OTHER)), (Standing::Idle, Standing::Idle));
}

#[test]
fn what_another_invocation_holds_or_what_was_refused_or_lost_does_not_count() {
    let mut script = Script::new();
    let put = one_send(&script.give(ask(1, OTHER)));
    script.answer(&put, Answer::Done);
    assert_eq!((script.core.standing(&SCOPE), script.core.standing(&OTHER)), (Standing::Idle, Standing::Locked));
    // Told to be lost, but its client may still believe: its row is given back later.
    script.give(Input::GiveUp(1, LostReason::ExtensionFailed));
    assert_eq!(script.core.standing(&OTHER), Standing::Idle);

    let put = one_send(&script.give(ask(2, SCOPE)));
    script.answer(&put, Answer::Failed(shows(&row(7, 8, 60_000))));
    assert_eq!(script.core.standing(&SCOPE), Standing::Locked, "it waits");
    for _ in 0..20 {
        for read in sends(&script.pass(100 * MS)) {
            script.answer(&read, Answer::Found(shows(&row(7, 8, 60_000))));
        }
    }
    assert_eq!(script.core.standing(&SCOPE), Standing::Idle, "busy");
}
