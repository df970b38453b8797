//! What clients said they believed, and whether any two of them can have believed at once.

/// A time during which one process believes that it holds the lock, on the boot-time clock in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Belief {
    /// Whose.
    pub(crate) process: String,
    pub(crate) from: u64,
    /// As far as it was told "valid", and no further than its own release or its death.
    pub(crate) until: u64,
}

/// What one process tells, read line by line.
#[derive(Debug, Default)]
pub(crate) struct Told {
    beliefs: Vec<Belief>,
    open: Option<Belief>,
    /// When it last said that it asks for the lock.
    pub(crate) waits: u64,
    pub(crate) plain: u64,
    pub(crate) guarded: u64,
    pub(crate) refused: u64,
    /// Writes whose outcome it does not know.
    pub(crate) unknown: u64,
}

impl Told {
    pub(crate) fn line(&mut self, process: &str, line: &str) {
        let mut words = line.split(' ');
        let word = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or_default();
        match word {
            "waits" => self.waits = number(),
            "granted" => {
                let (from, until) = (number(), number());
                self.close(u64::MAX);
                self.open = Some(Belief { process: process.to_owned(), from, until });
            }
            "valid" => {
                let (_, until) = (number(), number());
                if let Some(belief) = &mut self.open {
                    belief.until = belief.until.max(until);
                }
            }
            "over" => {
                let at = number();
                self.close(at);
            }
            "plain" => self.plain += 1,
            "guarded" => self.guarded += 1,
            "refused" => self.refused += 1,
            "unknown" => self.unknown += 1,
            other => panic!("{process} said {other}"),
        }
    }

    /// It believes nothing after `at`: it said so, or it is dead.
    pub(crate) fn close(&mut self, at: u64) {
        if let Some(mut belief) = self.open.take() {
            belief.until = belief.until.min(at);
            self.beliefs.push(belief);
        }
    }

    /// Did it believe at that moment?
    pub(crate) fn believed(&self, at: u64) -> bool {
        self.beliefs.iter().chain(&self.open).any(|belief| belief.from <= at && at < belief.until)
    }

    /// Since when it holds what it has not let go of.
    pub(crate) fn holds(&self) -> Option<u64> {
        self.open.as_ref().map(|belief| belief.from)
    }

    pub(crate) fn beliefs(&self) -> impl Iterator<Item = &Belief> {
        self.beliefs.iter().chain(&self.open)
    }
}

/// Every two beliefs of different holds that share a moment.
pub(crate) fn overlaps(mut beliefs: Vec<Belief>) -> Vec<(Belief, Belief)> {
    beliefs.retain(|belief| belief.from < belief.until);
    beliefs.sort_by_key(|belief| belief.from);
    let mut longest: Option<Belief> = None;
    let mut found = Vec::new();
    for belief in beliefs {
        if let Some(before) = longest.as_ref().filter(|before| before.until > belief.from) {
            found.push((before.clone(), belief.clone()));
        }
        if longest.as_ref().is_none_or(|longest| longest.until < belief.until) {
            longest = Some(belief);
        }
    }
    found
}

#[test]
fn a_history_is_clean_if_and_only_if_no_moment_has_two_believers() {
    let belief = |process: &str, from, until| Belief { process: process.into(), from, until };
    let clean = vec![belief("b", 20, 30), belief("a", 10, 20), belief("a", 30, 40), belief("c", 35, 35)];
    assert_eq!(overlaps(clean.clone()), []);
    let long = [clean, vec![belief("d", 12, 39)]].concat();
    // One long belief meets all of the three, not only its neighbour.
    assert_eq!(overlaps(long).len(), 3);
    assert_eq!(overlaps(vec![belief("a", 0, 100), belief("b", 10, 20), belief("c", 50, 60)]).len(), 2);
}

#[test]
fn what_a_process_believes_ends_with_its_word_or_its_death() {
    let mut told = Told::default();
    for line in ["waits 1", "granted 10 100", "valid 50 140", "over 90", "granted 200 300"] {
        told.line("p", line);
    }
    assert!(told.believed(10) && told.believed(89) && !told.believed(90) && told.believed(250));
    told.close(260);
    assert!(!told.believed(260));
    assert_eq!(told.beliefs().map(|belief| (belief.from, belief.until)).collect::<Vec<_>>(), [(10, 90), (200, 260)]);
}
