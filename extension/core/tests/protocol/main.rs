//! The lock protocol's rules, one by one, on a core whose time and answers are given by hand.

#[path = "../common/mod.rs"]
mod common;
mod costs;
mod edges;
mod faults;
mod freezes;
mod hand_over;
mod invocations;
mod many_keys;
mod rules_giving_back;
mod rules_holding;
mod rules_waiting;
mod script;
mod standing;
mod text;
