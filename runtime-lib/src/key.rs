//! Keys and key templates: the same template and values give the same key in every language that shares the table.

use crate::LockError;
use leasekeeper_wire::MAX_KEY;
use std::error::Error;
use std::fmt;

/// A lock's name: 1 to 2,048 bytes of UTF-8.
///
/// Its `Debug` form does not show it: keys are often customers' ids.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// Takes `key` as it is, without a template.
    ///
    /// # Errors
    /// [`LockError::Protocol`] if it is empty or longer than 2,048 bytes.
    pub fn new(key: impl Into<String>) -> Result<Self, LockError> {
        let key = key.into();
        match key.len() {
            0 => Err(LockError::protocol("the key is empty")),
            length if length > MAX_KEY => {
                Err(LockError::protocol(format!("the key has {length} bytes; at most {MAX_KEY} are allowed")))
            }
            _ => Ok(Self(key)),
        }
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// What can be asked for as a lock: a [`Key`], a text, or the result of making one.
pub trait IntoKey {
    /// The key.
    ///
    /// # Errors
    /// [`LockError::Protocol`] if there is no valid key; nothing is sent then.
    fn into_key(self) -> Result<Key, LockError>;
}

impl IntoKey for Key {
    fn into_key(self) -> Result<Key, LockError> {
        Ok(self)
    }
}

impl IntoKey for String {
    fn into_key(self) -> Result<Key, LockError> {
        Key::new(self)
    }
}

impl IntoKey for &str {
    fn into_key(self) -> Result<Key, LockError> {
        Key::new(self)
    }
}

impl IntoKey for &Key {
    fn into_key(self) -> Result<Key, LockError> {
        Ok(self.clone())
    }
}

impl IntoKey for &String {
    fn into_key(self) -> Result<Key, LockError> {
        Key::new(self)
    }
}

impl<K: IntoKey, E: Into<Box<dyn Error + Send + Sync>>> IntoKey for Result<K, E> {
    fn into_key(self) -> Result<Key, LockError> {
        match self {
            Ok(key) => key.into_key(),
            Err(error) => Err(match error.into().downcast::<LockError>() {
                Ok(error) => *error,
                Err(error) => LockError::protocol(format!("the key could not be made: {error}")),
            }),
        }
    }
}

/// A parsed key template, such as `customer:{customer_id}`.
///
/// `{name}` stands for a value, `{{` and `}}` for literal braces. Where a template has one placeholder, the value is
/// put in as it is; where it has two or more, each becomes `<length in bytes>:<value>`, so that no two different lists of
/// values make the same key.
///
/// ```
/// # use leasekeeper::KeyTemplate;
/// let template = KeyTemplate::parse("{tenant}:{order}")?;
/// let key = template.render(&[("tenant", &"acme"), ("order", &123)])?;
/// assert_eq!(key.as_str(), "4:acme:3:123");
/// # Ok::<(), leasekeeper::LockError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTemplate {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Value(String),
}

impl KeyTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// [`LockError::Protocol`] for a brace without its partner, for a placeholder's name that is not made of
    /// letters, digits and underscores or begins with a digit, and for an empty template.
    pub fn parse(template: &str) -> Result<Self, LockError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = template;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..];
            if brace.starts_with("{{") || brace.starts_with("}}") {
                literal.push_str(&brace[..1]);
                rest = &brace[2..];
            } else if brace.starts_with('}') {
                return Err(LockError::protocol("the key template has a lone `}`: write `}}` for a literal one"));
            } else {
                let end = brace.find('}').ok_or_else(|| {
                    LockError::protocol("the key template has a `{` without its `}`: write `{{` for a literal one")
                })?;
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal)));
                }
                parts.push(Part::Value(placeholder(&brace[1..end])?));
                rest = &brace[end + 1..];
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        if parts.is_empty() {
            return Err(LockError::protocol("the key template is empty"));
        }
        Ok(Self { parts })
    }

    /// Each placeholder's name, once.
    #[cfg(feature = "http")]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.parts.iter().filter_map(|part| match part {
            Part::Value(name) => Some(name.as_str()),
            Part::Literal(_) => None,
        });
        names.collect::<std::collections::BTreeSet<_>>().into_iter()
    }

    /// Puts the values in. Each is written as its `Display` form.
    ///
    /// # Errors
    /// [`LockError::Protocol`] if a placeholder has no value, a value no placeholder, a name two values, or if the key is
    /// empty or longer than 2,048 bytes.
    pub fn render(&self, values: &[(&str, &dyn fmt::Display)]) -> Result<Key, LockError> {
        for (index, (name, _)) in values.iter().enumerate() {
            if values[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(LockError::protocol(format!("the value {name:?} is given twice")));
            }
            if !self.parts.iter().any(|part| matches!(part, Part::Value(placeholder) if placeholder == name)) {
                return Err(LockError::protocol(format!("the key template has no placeholder {name:?}")));
            }
        }
        let framed = self.parts.iter().filter(|part| matches!(part, Part::Value(_))).count() > 1;
        let mut key = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => key.push_str(text),
                Part::Value(name) => {
                    let (_, value) = values.iter().find(|(given, _)| given == name).ok_or_else(|| {
                        LockError::protocol(format!("the placeholder {name:?} of the key template has no value"))
                    })?;
                    let value = value.to_string();
                    if framed {
                        key.push_str(&format!("{}:", value.len()));
                    }
                    key.push_str(&value);
                }
            }
        }
        Key::new(key)
    }
}

fn placeholder(name: &str) -> Result<String, LockError> {
    let mut letters = name.chars();
    let first = letters.next().is_some_and(|letter| letter.is_alphabetic() || letter == '_');
    if first && letters.all(|letter| letter.is_alphanumeric() || letter == '_') {
        return Ok(name.to_owned());
    }
    let name: String = name.chars().take(64).collect();
    Err(LockError::protocol(format!(
        "the placeholder {name:?} of the key template is not a valid name: use letters, digits and underscores, and no digit first"
    )))
}

/// Makes a [`Key`] from a template and its values; see [`KeyTemplate`] for the rules.
///
/// Gives `Result<Key, LockError>`; whatever takes a key takes that too. `name` alone stands for `name = name`.
///
/// ```
/// let (order, customer_id) = (("acme", 7), 123);
/// let key = leasekeeper::key!("customer:{customer_id}", customer_id)?;
/// assert_eq!(key.as_str(), "customer:123");
/// let key = leasekeeper::key!("{tenant}/{order}", tenant = order.0, order = order.1)?;
/// assert_eq!(key.as_str(), "4:acme/1:7");
/// # Ok::<(), leasekeeper::LockError>(())
/// ```
///
/// The template is a literal or a constant and is looked at by the compiler, so that a mistake in it never runs; what is
/// left to go wrong is a key that is empty or too long. For a template that is not known before, use [`KeyTemplate`].
///
/// A placeholder without its value:
///
/// ```compile_fail
/// let key = leasekeeper::key!("customer:{customer}", customer_id = 123);
/// ```
///
/// A value without its placeholder:
///
/// ```compile_fail
/// let key = leasekeeper::key!("customer:{customer_id}", customer_id = 123, tenant = "acme");
/// ```
///
/// A value that is given twice:
///
/// ```compile_fail
/// let key = leasekeeper::key!("customer:{customer_id}", customer_id = 123, customer_id = 123);
/// ```
///
/// A brace without its partner, on either side:
///
/// ```compile_fail
/// let key = leasekeeper::key!("customer:{customer_id", customer_id = 123);
/// ```
///
/// ```compile_fail
/// let key = leasekeeper::key!("customer:customer_id}");
/// ```
///
/// A placeholder that is not a name, or that has a format specification:
///
/// ```compile_fail
/// let key = leasekeeper::key!("customer:{}", customer_id = 123);
/// ```
///
/// ```compile_fail
/// let key = leasekeeper::key!("customer:{customer_id:>8}", customer_id = 123);
/// ```
///
/// An empty template:
///
/// ```compile_fail
/// let key = leasekeeper::key!("");
/// ```
#[macro_export]
macro_rules! key {
    (@value $name:ident) => { $name };
    (@value $name:ident = $value:expr) => { $value };
    ($template:expr $(, $name:ident $(= $value:expr)?)* $(,)?) => {{
        // An item, so that it is looked at even where this code is generic or never called.
        const _: () = $crate::__private::check(
            $template,
            [$($crate::__private::name(::core::stringify!($name))),*],
        );
        // Not a closure: a value may hold `?` or `.await`.
        match $crate::KeyTemplate::parse($template) {
            ::core::result::Result::Ok(template) => template.render(&[$((
                $crate::__private::name(::core::stringify!($name)),
                &$crate::key!(@value $name $(= $value)?) as &dyn ::core::fmt::Display,
            )),*]),
            ::core::result::Result::Err(error) => ::core::result::Result::Err(error),
        }
    }};
}
