//! Requests: decoded strictly, so that a new client's wish is never granted as something less by an old extension.

use crate::{Code, MAX_KEY, MAX_LEASE_MS, MAX_LINE, MAX_REQUEST_ID, MAX_WAIT_MS, MIN_LEASE_MS, VERSION};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value, json};
use std::fmt;

/// One request line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the client, echoed in the reply: requests may be pipelined.
    pub id: u64,
    /// What is asked for.
    pub op: Op,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// The extension's version and features.
    Hello,
    /// A lock.
    Acquire(Acquire),
    /// Give a lease back.
    Release {
        /// The lease's number, from the grant.
        lease: u64,
    },
    /// Is this lease still valid, and for how long?
    Check {
        /// The lease's number, from the grant.
        lease: u64,
    },
    /// The lease's figures so far.
    Metrics {
        /// The lease's number, from the grant.
        lease: u64,
    },
}

/// What an acquire says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acquire {
    /// The lock's name: 1 to 2,048 bytes of UTF-8.
    pub key: String,
    /// The invocation that the lease belongs to; required under Lambda.
    pub request_id: Option<String>,
    /// How much of the invocation is left, in milliseconds; required under Lambda.
    pub remaining_ms: Option<u64>,
    /// How long to wait for the lock, in milliseconds (0 tries once); the extension's setting if absent.
    pub wait_ms: Option<u64>,
    /// The lease to write, in milliseconds; the extension's setting if absent.
    pub lease_ms: Option<u64>,
}

/// Why a line is no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The line's id, if it could be read: the error reply echoes it.
    pub id: Option<u64>,
    /// Always [`Code::Protocol`]; carried so that a reply can be made without knowing that.
    pub code: Code,
    /// What is wrong and what was expected.
    pub message: String,
}

impl Rejected {
    fn new(id: Option<u64>, message: impl Into<String>) -> Self {
        Self { id, code: Code::Protocol, message: message.into() }
    }

    /// The line is longer than [`MAX_LINE`]; it was skipped up to its newline.
    pub fn too_long() -> Self {
        Self::new(None, format!("the line is longer than {MAX_LINE} bytes"))
    }
}

impl Request {
    /// Reads one line, with or without its newline.
    ///
    /// # Errors
    /// Anything that is not exactly a version 1 request: the error names the field.
    pub fn decode(line: &[u8]) -> Result<Self, Rejected> {
        if line.len() > MAX_LINE {
            return Err(Rejected::too_long());
        }
        let Object(map) = serde_json::from_slice(line).map_err(|e| Rejected::new(None, not_an_object(line, &e)))?;
        let mut fields = Fields { map, id: None };
        let id = fields.whole("id")?.ok_or_else(|| fields.wrong("id", "is required: a whole number from 0"))?;
        fields.id = Some(id);
        match fields.whole("v")? {
            Some(VERSION) => {}
            Some(other) => {
                return Err(fields.wrong("v", &format!("is {other}: this extension speaks version {VERSION}")));
            }
            None => return Err(fields.wrong("v", &format!("is required: {VERSION}"))),
        }
        let op = fields.text("op")?.ok_or_else(|| fields.wrong("op", "is required"))?;
        let op = match op.as_str() {
            "hello" => Op::Hello,
            "acquire" => Op::Acquire(fields.acquire()?),
            "release" => Op::Release { lease: fields.lease()? },
            "check" => Op::Check { lease: fields.lease()? },
            "metrics" => Op::Metrics { lease: fields.lease()? },
            _ => return Err(fields.wrong("op", "is unknown: hello, acquire, release, check or metrics")),
        };
        fields.finish()?;
        Ok(Self { id, op })
    }

    /// The line to send, newline included.
    pub fn encode(&self) -> String {
        let mut line = match &self.op {
            Op::Hello => json!({"op": "hello"}),
            Op::Acquire(acquire) => acquire.to_json(),
            Op::Release { lease } => json!({"op": "release", "lease": lease}),
            Op::Check { lease } => json!({"op": "check", "lease": lease}),
            Op::Metrics { lease } => json!({"op": "metrics", "lease": lease}),
        };
        line["v"] = VERSION.into();
        line["id"] = self.id.into();
        format!("{line}\n")
    }
}

impl Acquire {
    /// Looks at the ranges that the form of a request cannot show.
    ///
    /// # Errors
    /// Names the field and its range.
    pub fn validate(&self) -> Result<(), String> {
        if self.key.is_empty() || self.key.len() > MAX_KEY {
            return Err(format!("field key must have 1 to {MAX_KEY} bytes of UTF-8, not {}", self.key.len()));
        }
        if let Some(id) = self.request_id.as_ref().filter(|id| id.is_empty() || id.len() > MAX_REQUEST_ID) {
            return Err(format!("field request_id must have 1 to {MAX_REQUEST_ID} bytes, not {}", id.len()));
        }
        if let Some(lease) = self.lease_ms.filter(|lease| !(MIN_LEASE_MS..=MAX_LEASE_MS).contains(lease)) {
            return Err(format!("field lease_ms must be {MIN_LEASE_MS} to {MAX_LEASE_MS} milliseconds, not {lease}"));
        }
        if let Some(wait) = self.wait_ms.filter(|wait| *wait > MAX_WAIT_MS) {
            return Err(format!("field wait_ms must be 0 to {MAX_WAIT_MS} milliseconds, not {wait}"));
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let mut line = json!({"op": "acquire", "key": self.key});
        if let Some(id) = &self.request_id {
            line["request_id"] = id.as_str().into();
        }
        for (name, value) in
            [("remaining_ms", self.remaining_ms), ("wait_ms", self.wait_ms), ("lease_ms", self.lease_ms)]
        {
            if let Some(value) = value {
                line[name] = value.into();
            }
        }
        line
    }
}

fn not_an_object(line: &[u8], error: &serde_json::Error) -> String {
    if line.iter().all(u8::is_ascii_whitespace) {
        "the line is empty: one JSON object a line".into()
    } else if error.is_data() {
        format!("the line is not one JSON object with every field once: {error}")
    } else {
        format!("the line is not JSON: {error}")
    }
}

/// The line's fields, taken out one by one; what is left over was not expected.
struct Fields {
    map: Map<String, Value>,
    /// Known once it was read, so that later errors echo it.
    id: Option<u64>,
}

impl Fields {
    fn wrong(&self, field: &str, what: &str) -> Rejected {
        Rejected::new(self.id, format!("field {field} {what}"))
    }

    fn whole(&mut self, field: &str) -> Result<Option<u64>, Rejected> {
        match self.map.remove(field) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(field, "must be a whole number from 0")),
            },
        }
    }

    fn text(&mut self, field: &str) -> Result<Option<String>, Rejected> {
        match self.map.remove(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(field, "must be a string")),
        }
    }

    fn lease(&mut self) -> Result<u64, Rejected> {
        self.whole("lease")?.ok_or_else(|| self.wrong("lease", "is required: the number from the grant"))
    }

    fn acquire(&mut self) -> Result<Acquire, Rejected> {
        let acquire = Acquire {
            key: self.text("key")?.ok_or_else(|| self.wrong("key", "is required"))?,
            request_id: self.text("request_id")?,
            remaining_ms: self.whole("remaining_ms")?,
            wait_ms: self.whole("wait_ms")?,
            lease_ms: self.whole("lease_ms")?,
        };
        acquire.validate().map_err(|message| Rejected::new(self.id, message))?;
        Ok(acquire)
    }

    fn finish(self) -> Result<(), Rejected> {
        match self.map.keys().next() {
            None => Ok(()),
            Some(field) => {
                let field: String = field.chars().take(64).collect();
                Err(Rejected::new(self.id, format!("field {field:?} is unknown to version {VERSION}")))
            }
        }
    }
}

/// A JSON object in which every field stands once: of two keys, which one was meant?
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Once;
        impl<'de> Visitor<'de> for Once {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Object, A::Error> {
                let mut map = Map::new();
                while let Some((field, value)) = access.next_entry::<String, Value>()? {
                    if map.contains_key(&field) {
                        return Err(A::Error::custom("a field stands twice"));
                    }
                    map.insert(field, value);
                }
                Ok(Object(map))
            }
        }
        deserializer.deserialize_map(Once)
    }
}
