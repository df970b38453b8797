//! What the compiler looks at in `key!`: does the template hold together, and do the values fit it?
//!
//! The rules are those of [`KeyTemplate`](crate::KeyTemplate), written once more because its own cannot run while a
//! program is compiled; a test holds the two together.

/// Fails the compilation with what is wrong with the template, or with the values' names for it.
pub const fn check<const COUNT: usize>(template: &str, names: [&str; COUNT]) {
    if let Some(mistake) = mistake(template, &names, &mut [false; COUNT]) {
        panic!("{}", mistake.text());
    }
}

/// The name that a placeholder has for this identifier: `r#type` stands for `{type}`.
pub const fn name(identifier: &str) -> &str {
    match identifier.as_bytes() {
        [b'r', b'#', name @ ..] => text(name),
        _ => identifier,
    }
}

/// What is wrong, if anything is. `used` has a flag for each name, none of them set.
const fn mistake(template: &str, names: &[&str], used: &mut [bool]) -> Option<Mistake> {
    let template = template.as_bytes();
    if template.is_empty() {
        return Some(Mistake::new("the key template is empty"));
    }
    let mut at = 0;
    while at < template.len() {
        let byte = template[at];
        if byte != b'{' && byte != b'}' {
            at += 1;
        } else if at + 1 < template.len() && template[at + 1] == byte {
            at += 2;
        } else if byte == b'}' {
            return Some(Mistake::new("the key template has a lone `}`: write `}}` for a literal one"));
        } else {
            let Some(end) = find(template, b'}', at) else {
                return Some(Mistake::new("the key template has a `{` without its `}`: write `{{` for a literal one"));
            };
            let placeholder = template.split_at(end).0.split_at(at + 1).1;
            if let Some(mistake) = unfit(placeholder, names, used) {
                return Some(mistake);
            }
            at = end + 1;
        }
    }
    unused(names, used)
}

/// Marks the placeholder's value as used, or tells why it cannot.
const fn unfit(placeholder: &[u8], names: &[&str], used: &mut [bool]) -> Option<Mistake> {
    if find(placeholder, b':', 0).is_some() || find(placeholder, b'!', 0).is_some() {
        let mistake = Mistake::about("the placeholder `", text(placeholder));
        return Some(mistake.and("` of the key template has a format specification: give a formatted value instead"));
    }
    if !is_name(placeholder) {
        let mistake = Mistake::about("the placeholder `", text(placeholder));
        return Some(mistake.and(
            "` of the key template is not a valid name: use letters, digits and underscores, and no digit first",
        ));
    }
    let mut known = false;
    let mut index = 0;
    while index < names.len() {
        if same(names[index].as_bytes(), placeholder) {
            used[index] = true;
            known = true;
        }
        index += 1;
    }
    if known {
        return None;
    }
    let mistake = Mistake::about("the placeholder `", text(placeholder));
    Some(
        mistake
            .and("` of the key template has no value: add `")
            .and(shortened(text(placeholder), Mistake::SHOWN))
            .and(" = …`"),
    )
}

const fn unused(names: &[&str], used: &[bool]) -> Option<Mistake> {
    let mut index = 0;
    while index < names.len() {
        let mut earlier = 0;
        while earlier < index {
            if same(names[earlier].as_bytes(), names[index].as_bytes()) {
                return Some(Mistake::about("the value `", names[index]).and("` is given twice"));
            }
            earlier += 1;
        }
        if !used[index] {
            return Some(Mistake::about("the key template has no placeholder `{", names[index]).and("}`"));
        }
        index += 1;
    }
    None
}

/// Outside ASCII any letter is let pass: it has to be that of a value's name, which the compiler has looked at.
const fn is_name(placeholder: &[u8]) -> bool {
    let mut index = 0;
    while index < placeholder.len() {
        let byte = placeholder[index];
        if !(byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80 || (byte.is_ascii_digit() && index > 0)) {
            return false;
        }
        index += 1;
    }
    !placeholder.is_empty()
}

const fn find(bytes: &[u8], byte: u8, from: usize) -> Option<usize> {
    let mut at = from;
    while at < bytes.len() {
        if bytes[at] == byte {
            return Some(at);
        }
        at += 1;
    }
    None
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Cut from a text at ASCII characters, so always a text itself.
const fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => "",
    }
}

/// A sentence that is put together where nothing can be allocated.
#[derive(Clone, Copy)]
struct Mistake {
    bytes: [u8; Self::ROOM],
    length: usize,
}

impl Mistake {
    /// For the longest of the sentences with a name of 64 bytes in both its places.
    const ROOM: usize = 320;

    /// The longest piece that is a name of the user's.
    const SHOWN: usize = 64;

    const fn new(words: &str) -> Self {
        Self { bytes: [0; Self::ROOM], length: 0 }.and(words)
    }

    const fn about(words: &str, name: &str) -> Self {
        Self::new(words).and(shortened(name, Self::SHOWN))
    }

    const fn and(mut self, words: &str) -> Self {
        let words = shortened(words, Self::ROOM - self.length).as_bytes();
        let mut index = 0;
        while index < words.len() {
            self.bytes[self.length] = words[index];
            self.length += 1;
            index += 1;
        }
        self
    }

    const fn text(&self) -> &str {
        text(self.bytes.split_at(self.length).0)
    }
}

/// As much of the text as `most` bytes have room for, cut between characters.
const fn shortened(whole: &str, most: usize) -> &str {
    let bytes = whole.as_bytes();
    if bytes.len() <= most {
        return whole;
    }
    let mut end = most;
    while end > 0 && bytes[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    text(bytes.split_at(end).0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyTemplate;
    use serde_json::Value;
    use std::fmt::Display;
    use std::path::Path;

    fn said(template: &str, names: &[&str]) -> Option<String> {
        mistake(template, names, &mut vec![false; names.len()]).map(|mistake| mistake.text().to_owned())
    }

    #[test]
    fn the_compiler_refuses_exactly_what_a_parsed_template_does() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/keys.json");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut file: Value = serde_json::from_str(&text).expect("the vectors are JSON");
        let cases: Vec<Value> = serde_json::from_value(file["cases"].take()).expect("a list of cases");
        let mut refused = 0;
        for case in &cases {
            let template = case["template"].as_str().expect("a text");
            let values = case["values"].as_object().expect("values by name");
            let given: Vec<&str> = values.keys().map(String::as_str).collect();
            let mut wrong = given.clone();
            wrong.push("unheard_of");
            let mut twice = given.clone();
            twice.extend(given.first());
            for names in [given, wrong, twice] {
                // A value that makes no key empty or too long: both sides see the template and the names alone.
                let values: Vec<(&str, &dyn Display)> = names.iter().map(|name| (*name, &"v" as _)).collect();
                let parsed = KeyTemplate::parse(template).and_then(|template| template.render(&values));
                let said = said(template, &names);
                assert_eq!(said.is_some(), parsed.is_err(), "{template:?} with {names:?}: {said:?}, {parsed:?}");
                refused += usize::from(said.is_some());
            }
        }
        assert!(cases.len() >= 70 && refused > cases.len(), "{refused} of {}", cases.len());
    }

    #[test]
    fn a_mistake_is_told_in_words() {
        for (template, names, words) in [
            ("", &[][..], "the key template is empty"),
            ("{x", &["x"], "a `{` without its `}`: write `{{`"),
            ("x}", &[], "a lone `}`: write `}}`"),
            ("{}", &[], "the placeholder `` of the key template is not a valid name"),
            ("{0}", &[], "the placeholder `0` of the key template is not a valid name"),
            ("{x:>8}", &["x"], "the placeholder `x:>8` of the key template has a format specification"),
            ("{x!r}", &["x"], "has a format specification"),
            ("{name}", &["nam"], "the placeholder `name` of the key template has no value: add `name = …`"),
            ("{nam}", &["name"], "the placeholder `nam` of the key template has no value"),
            ("{x}", &["x", "y"], "the key template has no placeholder `{y}`"),
            ("{x}", &["x", "x"], "the value `x` is given twice"),
        ] {
            let said = said(template, names).expect(template);
            assert!(said.contains(words), "{template}: {said}");
        }
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let long = format!("x{}", "é".repeat(400));
        let shown = format!("x{}", "é".repeat(31));
        let said_of = said(&format!("{{{long}}}"), &[]).expect("no value");
        assert!(
            said_of.starts_with(&format!("the placeholder `{shown}` of the key template has no value")),
            "{said_of}"
        );
        assert!(said("x", &[&long]).expect("no placeholder").ends_with(&format!("`{{{shown}}}`")));
    }

    #[test]
    fn a_raw_identifier_stands_for_its_name() {
        assert_eq!((name("r#type"), name("type"), name("r")), ("type", "type", "r"));
    }
}
