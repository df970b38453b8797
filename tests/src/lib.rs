//! The test kit: an embedded DynamoDB with faults, a Lambda sandbox, AWS's emulator, and what the tests share.

pub mod clocks;
pub mod deeds;
pub mod dynamo;
pub mod entropy;
pub mod evidence;
pub mod languages;
pub mod memory;
pub mod ministack;
pub mod moments;
pub mod programs;
pub mod pydynox;
pub mod quota;
pub mod rie;
pub mod sandbox;
pub mod sidecar;
pub mod tls;
pub mod unlocked;
