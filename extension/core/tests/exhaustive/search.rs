//! One search or one replay: what was found, as figures and as a schedule that can be run again.

use crate::model::bounds::Bounds;
use crate::model::{Action, Locks, Moments, Rule, State};
use stateright::report::{ReportData, ReportDiscovery, Reporter};
use stateright::{Checker, HasDiscoveries, Model};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// A schedule to be run instead of a search, as a failure prints it.
const SCHEDULE: &str = "LEASEKEEPER_MODEL_SCHEDULE";

/// Asks for the searches of the published proof instead of their small forms.
const PROOF: &str = "LEASEKEEPER_PROOF";

pub(crate) fn is_full() -> bool {
    std::env::var(PROOF).is_ok_and(|proof| proof == "full")
}

/// What a search has seen.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    pub(crate) depth: usize,
    pub(crate) time: Duration,
    pub(crate) moments: Arc<Moments>,
    /// The rules that were broken, each with a shortest schedule to it.
    pub(crate) broken: BTreeMap<&'static str, Vec<Action>>,
}

impl Reporter<Locks> for Found {
    fn report_checking(&mut self, data: ReportData) {
        (self.states, self.steps) = (data.unique_states, data.total_states);
        (self.depth, self.time) = (data.max_depth, data.duration);
    }

    fn report_discoveries(&mut self, _: &Locks, discoveries: BTreeMap<&'static str, ReportDiscovery<Locks>>) {
        self.broken = discoveries.into_iter().map(|(name, found)| (name, found.path.into_actions())).collect();
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(5)
    }
}

/// Looks at everything within `bounds`, or until one of `rules` is seen broken.
///
/// One thread finds a shortest schedule; more are faster, and come to as many states.
pub(crate) fn search(bounds: &Bounds, rules: &[Rule], threads: usize) -> Found {
    let model = Locks::new(bounds.clone(), rules);
    let mut found = Found { moments: Arc::clone(&model.moments), ..Found::default() };
    let names: BTreeSet<_> = rules.iter().map(|rule| rule.name()).collect();
    let checker = model.checker().threads(threads).finish_when(HasDiscoveries::AnyOf(names.clone()));
    let _ = checker.spawn_bfs().join_and_report(&mut found);
    found.broken.retain(|name, _| names.contains(name));
    found
}

/// Runs the schedule that the environment names, if it does: prints each step and what is broken after it.
pub(crate) fn replay(bounds: &Bounds, rules: &[Rule]) -> bool {
    let Ok(text) = std::env::var(SCHEDULE) else { return false };
    let actions: Vec<_> =
        text.split_whitespace().map(|step| step.parse().unwrap_or_else(|wrong| panic!("{wrong}"))).collect();
    let (told, broken) = run(bounds, rules, &actions);
    println!("{told}");
    assert!(broken.is_empty(), "the schedule breaks {broken:?}");
    true
}

/// Takes the steps one by one; returns the story, and what is broken at its end.
pub(crate) fn run(bounds: &Bounds, rules: &[Rule], actions: &[Action]) -> (String, Vec<Rule>) {
    let model = Locks::new(bounds.clone(), rules);
    let mut state = model.init_states().remove(0);
    let mut told = String::new();
    for action in actions {
        let mut possible = Vec::new();
        model.actions(&state, &mut possible);
        assert!(possible.contains(action), "{told}{action} is not possible here");
        state = model.next_state(&state, *action).unwrap_or_else(|| panic!("{told}{action} is beyond the bounds"));
        let _ = writeln!(told, "{action}\n{}", tell(&state));
    }
    let broken = rules.iter().copied().filter(|rule| !state.keeps(*rule)).collect();
    (told, broken)
}

fn tell(state: &State) -> String {
    let mut text = match &state.table.row {
        Some(row) => format!("    row: owner {}, version {}", row.owner.0, row.version.0),
        None => "    no row".into(),
    };
    for (n, client) in state.clients.iter().enumerate() {
        let _ = write!(text, "\n    client {n}, unread {} µs:", client.unread());
        for guard in &client.guards {
            let left = guard.belief.saturating_sub(client.unread());
            let owner = guard.owner.map_or("none".into(), |owner| owner.0.to_string());
            let _ = write!(text, " [owner {owner}, held {}, believed for {left} µs]", guard.held);
        }
        for message in &client.messages {
            let no = message.no;
            let _ = match &message.answer {
                Some(answer) => write!(text, "\n        {no}: {:?} answered by {answer:?}", message.op),
                None => write!(text, "\n        {no}: {:?}", message.op),
            };
        }
    }
    text
}

pub(crate) fn text(actions: &[Action]) -> String {
    actions.iter().map(Action::to_string).collect::<Vec<_>>().join(" ")
}

/// The one command that runs a schedule again.
pub(crate) fn command(test: &str, actions: &[Action]) -> String {
    let full = if is_full() { "LEASEKEEPER_PROOF=full " } else { "" };
    format!(
        "{full}{SCHEDULE}='{}' cargo test -p leasekeeper-core --test exhaustive {test} -- --exact --nocapture",
        text(actions)
    )
}
