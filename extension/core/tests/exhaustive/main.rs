//! Every state that two real cores, one row, a bad network and wrong clocks can get into, within bounds that are named.
//!
//! Time has no end in most of these searches: a state is what can still make a difference (see `model::canon`), so holds,
//! renewals and waits that go on for ever come back to states that were looked at. What is bounded is how often something
//! goes wrong on one way through. `LEASEKEEPER_PROOF=full` goes further than `make test` does.

mod broken;
mod model;
mod promises;
mod same;
mod search;
