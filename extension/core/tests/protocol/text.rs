//! The core over text, as production has it, does what the core does.

use crate::script::{MS, SECOND};
use leasekeeper_core::{Acquire, Answer, Config, Core, Entropy, Input, Now, Output, Standing, TextCore};
use std::sync::Arc;

type Text = Arc<str>;

#[derive(Clone)]
struct Ids(u64);

impl Entropy<Text> for Ids {
    fn id(&mut self) -> Text {
        self.0 += 1;
        self.0.to_string().into()
    }

    fn jitter(&mut self) -> u64 {
        self.0 * 137 % 1_000
    }
}

/// Both, side by side.
struct Twins {
    text: TextCore,
    core: Core<Text>,
    ids: [Ids; 2],
    micros: u64,
}

impl Twins {
    /// One input for both, after a while: what comes out is the same, and so is all that can be asked.
    fn give(&mut self, after: u64, input: &Input<Text>) -> Vec<Output<Text>> {
        self.micros += after;
        let now = Now { boot: self.micros, mono: self.micros, wall: self.micros };
        self.text.handle(now, input.clone(), &mut self.ids[0]);
        self.core.handle(now, input.clone(), &mut self.ids[1]);
        let outputs: Vec<_> = std::iter::from_fn(|| self.text.poll()).collect();
        let expected: Vec<_> = std::iter::from_fn(|| self.core.poll()).collect();
        assert_eq!(outputs, expected, "{input:?}");
        assert_eq!(self.text.next_wakeup(), self.core.next_wakeup());
        assert_eq!(self.text.valid_for(1), self.core.valid_for(1));
        assert_eq!(self.text.standing(&"call".into()), self.core.standing(&"call".into()));
        assert_eq!(self.text.is_idle(), self.core.is_idle());
        outputs
    }
}

fn sent(outputs: &[Output<Text>]) -> u64 {
    let sent = outputs.iter().find_map(|output| match output {
        Output::Send(request) => Some(request.no),
        _ => None,
    });
    sent.unwrap_or_else(|| panic!("nothing is sent: {outputs:?}"))
}

#[test]
fn the_core_over_text_does_as_the_core_does() {
    let config = Config { freezes: false, ..Config::default() };
    let mut twins =
        Twins { text: TextCore::new(config.clone()), core: Core::new(config), ids: [Ids(0), Ids(0)], micros: 1 };
    let ask = Acquire {
        lease: 1,
        key: "customer:1".into(),
        lease_ms: 3_000,
        wait: SECOND,
        scope: Some("call".into()),
        remaining: None,
        max_hold: None,
    };
    assert_eq!((twins.text.is_idle(), twins.text.standing(&"call".into())), (true, Standing::Idle));
    let put = sent(&twins.give(MS, &Input::Acquire(ask)));
    assert!(!twins.text.is_idle() && twins.text.next_wakeup().is_some());
    twins.give(10 * MS, &Input::Answer(put, Answer::Done));
    assert_eq!((twins.text.valid_for(1), twins.text.standing(&"call".into())), (Some(2_690 * MS), Standing::Locked));
    let renewal = sent(&twins.give(SECOND, &Input::Tick));
    twins.give(10 * MS, &Input::Answer(renewal, Answer::Done));
    let delete = sent(&twins.give(10 * MS, &Input::Release(1)));
    assert_eq!((twins.text.valid_for(1), twins.text.standing(&"call".into())), (None, Standing::GivingBack));
    // The pause before the next attempt is spread by what is drawn.
    twins.give(10 * MS, &Input::Answer(delete, Answer::Unavailable("down".into())));
    let delete = sent(&twins.give(SECOND, &Input::Tick));
    twins.give(10 * MS, &Input::Answer(delete, Answer::Done));
    assert!(twins.text.is_idle() && twins.text.next_wakeup().is_none());
}
