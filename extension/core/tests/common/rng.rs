//! A small seeded generator (splitmix64): the same seed gives the same schedule everywhere.

use leasekeeper_core::Entropy;

#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in 0..n; 0 for n = 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }

    /// Uniform in low..=high.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of 100.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Ids from a counter, so that they never repeat; pauses as long as they are meant, or spread from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Draws {
    next_id: u64,
    step: u64,
    jitter: Option<Rng>,
}

impl Draws {
    /// Ids first, first + step, ...: environments that share a step and not a start never draw the same id.
    pub(crate) fn new(first: u64, step: u64, jitter: Option<Rng>) -> Self {
        Self { next_id: first, step, jitter }
    }
}

impl Entropy<u64> for Draws {
    fn id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += self.step;
        id
    }

    fn jitter(&mut self) -> u64 {
        self.jitter.as_mut().map_or(500, |rng| rng.between(0, 1_000))
    }
}
