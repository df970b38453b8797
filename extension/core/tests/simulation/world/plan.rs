//! What a schedule is made of, drawn from its seed before it starts.

use crate::common::rng::Rng;
use crate::common::{MS, SECOND};

/// Which part of the space a schedule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Everything, evenly.
    Uniform,
    /// Clocks at the ends of their drift, cut off while running, contenders that wait for the ripening.
    Edge,
    /// Only faults that a healthy holder must survive: nobody may lose, give up early or leave a row.
    Mild,
}

/// An assumption of the protocol that a schedule breaks on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Clocks are wrong by 8 %.
    Drift,
    /// A freeze stops boot and wall clock together.
    BothClocksStop,
    /// Somebody deletes rows by hand.
    RowsDeletedByHand,
    /// A layer below the core sends requests twice.
    Duplicates,
    /// The wall clock steps back inside freezes that stop the boot clock.
    WallStepsInFreeze,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) profile: Profile,
    pub(crate) broken: Option<Broken>,
    pub(crate) horizon: u64,
    pub(crate) clients: usize,
    pub(crate) keys: u64,
    /// The leases that clients ask for, in milliseconds.
    pub(crate) leases: [u64; 2],
    /// Rates of the three clocks of each environment, parts per million.
    pub(crate) rates: Vec<[u64; 3]>,
    /// Rates of the clocks of workers of another kind.
    pub(crate) peers: Vec<u64>,
    /// One way through the network, at least and at most.
    pub(crate) latency: (u64, u64),
    /// Percent of requests that meet a fault.
    pub(crate) faults: u64,
    /// Percent of a client's holds that end otherwise than by a release.
    pub(crate) rude: u64,
    /// How many disturbances (freezes, crashes, partitions, wall steps) there are; in the mild profile wall steps alone.
    pub(crate) disturbances: u64,
    pub(crate) freezes: bool,
}

impl Plan {
    pub(crate) fn new(seed: u64, profile: Profile, broken: Option<Broken>) -> Self {
        let mut rng = Rng::new(seed);
        let lease = rng.pick(&[100, 240, 1_000, 3_000, 20_000]);
        let other = if rng.chance(30) { rng.pick(&[lease / 2, lease * 2, lease * 5]).max(100) } else { lease };
        let environments = rng.between(2, 3) as usize;
        let (slow, fast) = if broken == Some(Broken::Drift) { (920_000, 1_080_000) } else { (950_000, 1_050_000) };
        let rates = (0..environments).map(|n| Self::rates(&mut rng, profile, broken, (slow, fast), n)).collect();
        let peers = rng.pick(&[0, 0, 0, 0, 0, 1, 1, 1, 1, 2]);
        let peers = (0..peers).map(|_| if rng.chance(50) { rng.pick(&[slow, fast]) } else { rng.between(slow, fast) });
        let peers = peers.collect();
        let unit = lease.min(other) * MS;
        let slow = match profile {
            Profile::Mild => unit / 100,
            // A round trip beyond an attempt's time-out can never work; the extension refuses such leases.
            _ => (unit / rng.pick(&[100, 30, 14])).min(450 * MS),
        };
        let quick = if rng.chance(50) { 0 } else { slow / 2 };
        Self {
            seed,
            profile,
            broken,
            horizon: lease.max(other) * MS * rng.between(2, 6),
            clients: rng.between(1, 3) as usize,
            keys: if rng.chance(80) { 1 } else { 2 },
            leases: [lease, other],
            rates,
            peers,
            latency: (quick, slow.max(1)),
            faults: match profile {
                Profile::Mild => 20,
                Profile::Edge => rng.pick(&[0, 5, 20]),
                Profile::Uniform => rng.pick(&[0, 5, 20, 50]),
            },
            rude: if profile == Profile::Mild { 0 } else { rng.pick(&[10, 40]) },
            disturbances: if profile == Profile::Mild { rng.below(3) } else { rng.between(1, 8) },
            freezes: rng.chance(70),
        }
    }

    fn rates(rng: &mut Rng, profile: Profile, broken: Option<Broken>, ends: (u64, u64), n: usize) -> [u64; 3] {
        let (slow, fast) = ends;
        match profile {
            // The first environment is slow and the others fast, or the other way round.
            Profile::Edge => {
                let first = if rng.chance(70) || broken == Some(Broken::Drift) { slow } else { fast };
                [if n == 0 { first } else { slow + fast - first }; 3]
            }
            Profile::Uniform => [(); 3].map(|()| rng.between(slow, fast)),
            Profile::Mild => [(); 3].map(|()| rng.between(990_000, 1_010_000)),
        }
    }

    pub(crate) fn longest_lease(&self) -> u64 {
        self.leases.iter().max().expect("two leases") * MS
    }

    pub(crate) fn shortest_lease(&self) -> u64 {
        self.leases.iter().min().expect("two leases") * MS
    }

    /// When everything must have come to rest after the last disturbance, at the latest.
    pub(crate) fn settling(&self) -> u64 {
        3 * self.longest_lease() + 30 * SECOND
    }
}
