//! The attributes of one message.

use std::borrow::Cow;

use super::{Form, Message};

/// The attributes of one message, in the order in which they stand in it.
pub(crate) struct Attributes<'a> {
    form: Form,
    pairs: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Attributes<'a> {
    /// Cuts a message into attributes and each of them at its first `=`. In a line the value of the key `last`
    /// goes on to the line's end: it may hold spaces and `=`, which PMI-1 has no way to escape.
    pub(crate) fn parse(message: Message<'a>, last: Option<&str>) -> Self {
        let Message { form, body } = message;
        let pairs = match form {
            Form::Block => parse_block(body),
            Form::Frame => parse_frame(body),
            Form::Line => parse_line(body, last),
        };
        Self { form, pairs }
    }

    /// How the message is written.
    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// The name of the command, with which every message begins.
    pub(crate) fn command(&self) -> Option<&'a [u8]> {
        let key: &[u8] = match self.form {
            Form::Block => b"mcmd",
            Form::Frame | Form::Line => b"cmd",
        };
        self.pairs
            .first()
            .filter(|(first, _)| *first == key)
            .map(|(_, value)| *value)
    }

    /// The value of the first attribute called `key`.
    pub(crate) fn value(&self, key: &str) -> Option<Cow<'a, [u8]>> {
        let (_, value) = self.pairs.iter().find(|(found, _)| *found == key.as_bytes())?;
        Some(self.unescaped(value))
    }

    /// All attributes from the first one called `key`.
    pub(crate) fn since<'s>(&'s self, key: &'s str) -> impl Iterator<Item = (&'a [u8], Cow<'a, [u8]>)> + 's {
        self.pairs
            .iter()
            .skip_while(move |(found, _)| *found != key.as_bytes())
            .map(|(key, value)| (*key, self.unescaped(value)))
    }

    /// All attributes whose key is `prefix` and a number, with the number.
    pub(crate) fn numbered<'s>(&'s self, prefix: &'s str) -> impl Iterator<Item = (u32, Cow<'a, [u8]>)> + 's {
        self.pairs.iter().filter_map(move |(key, value)| {
            let number = key.strip_prefix(prefix.as_bytes())?;
            let number = std::str::from_utf8(number).ok()?.parse().ok()?;
            Some((number, self.unescaped(value)))
        })
    }

    fn unescaped(&self, value: &'a [u8]) -> Cow<'a, [u8]> {
        if self.form != Form::Frame || !value.contains(&b';') {
            return value.into();
        }
        let mut unescaped = Vec::with_capacity(value.len());
        let mut after_semicolon = false;
        for &byte in value {
            after_semicolon = byte == b';' && !after_semicolon;
            if !after_semicolon {
                unescaped.push(byte);
            }
        }
        unescaped.into()
    }
}

/// A token without a `=` belongs to the value before it: MPICH sends service names with spaces in them.
fn parse_line<'a>(line: &'a [u8], last: Option<&str>) -> Vec<(&'a [u8], &'a [u8])> {
    // Key and value of each as (start, end).
    let mut pairs: Vec<(&[u8], (usize, usize))> = Vec::with_capacity(6);
    let mut start = 0;
    for token in line.split(|&byte| byte == b' ') {
        let end = start + token.len();
        match token.iter().position(|&byte| byte == b'=') {
            Some(split @ 1..) => {
                let key = &token[..split];
                let value = start + split + 1;
                if last.is_some_and(|last| key == last.as_bytes()) {
                    pairs.push((key, (value, line.len())));
                    break;
                }
                pairs.push((key, (value, end)));
            }
            _ => {
                if let Some((_, value)) = pairs.last_mut() {
                    value.1 = end;
                }
            }
        }
        start = end + 1;
    }
    // Several spaces in a row separate as one does; only at the end of the line do they belong to a value.
    let others = pairs.len().saturating_sub(1);
    for (_, value) in &mut pairs[..others] {
        while value.1 > value.0 && line[value.1 - 1] == b' ' {
            value.1 -= 1;
        }
    }
    let slices = pairs
        .into_iter()
        .map(|(key, (start, end))| (key, &line[start..end]));
    slices.collect()
}

fn parse_block(block: &[u8]) -> Vec<(&[u8], &[u8])> {
    block
        .split(|&byte| byte == b'\n')
        .filter_map(split_pair)
        .collect()
}

/// A `;` ends an attribute unless another follows; "decode left to right".
fn parse_frame(frame: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut pairs = Vec::with_capacity(8);
    let mut start = 0;
    let mut position = 0;
    while let Some(found) = frame[position..].iter().position(|&byte| byte == b';') {
        let end = position + found;
        if frame.get(end + 1) == Some(&b';') {
            position = end + 2;
            continue;
        }
        pairs.extend(split_pair(&frame[start..end]));
        start = end + 1;
        position = start;
    }
    pairs
}

fn split_pair(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let split = text.iter().position(|&byte| byte == b'=')?;
    Some((&text[..split], &text[split + 1..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(body: &[u8]) -> Attributes<'_> {
        Attributes::parse(
            Message {
                form: Form::Line,
                body,
            },
            Some("value"),
        )
    }

    fn frame(body: &[u8]) -> Attributes<'_> {
        Attributes::parse(
            Message {
                form: Form::Frame,
                body,
            },
            None,
        )
    }

    /// "Split at the FIRST `=` only", "An empty value is legal".
    #[test]
    fn a_value_may_be_empty_and_hold_equals_signs() {
        let attributes = line(b"cmd=publish key=segments=3 port= info=ok");
        assert_eq!(attributes.command(), Some(&b"publish"[..]));
        assert_eq!(attributes.value("key").as_deref(), Some(&b"segments=3"[..]));
        assert_eq!(attributes.value("port").as_deref(), Some(&b""[..]));
        assert_eq!(attributes.value("absent"), None);
        assert_eq!(line(b"key=1 cmd=finalize").command(), None);
    }

    /// "append a token without `=` to the previous value with one space", "clients tolerate several".
    #[test]
    fn a_token_without_equals_sign_continues_the_value() {
        let attributes = line(b"cmd=publish_name   service=my svc  port=p  q ");
        assert_eq!(attributes.command(), Some(&b"publish_name"[..]));
        assert_eq!(attributes.value("service").as_deref(), Some(&b"my svc"[..]));
        assert_eq!(attributes.value("port").as_deref(), Some(&b"p  q "[..]));
    }

    /// The value of a put may hold anything but the end of the line.
    #[test]
    fn the_last_value_goes_on_to_the_end() {
        let attributes = line(b"cmd=put key=k value= a b=c  key=x ");
        assert_eq!(attributes.value("value").as_deref(), Some(&b" a b=c  key=x "[..]));
        assert_eq!(attributes.value("key").as_deref(), Some(&b"k"[..]));
    }

    /// "in a value `;` is written `;;` .. decode left to right"; a value may be empty or be a `;`.
    #[test]
    fn semicolons_are_unescaped() {
        let attributes = frame(b"cmd=kvs-put;key=k;value=val-0;;x=0;;;a=;b=;;;c=x;;;;y;");
        assert_eq!(attributes.command(), Some(&b"kvs-put"[..]));
        for (key, value) in [("value", "val-0;x=0;"), ("a", ""), ("b", ";"), ("c", "x;;y")] {
            assert_eq!(attributes.value(key).as_deref(), Some(value.as_bytes()), "{key}");
        }
    }

    /// "VALUE = every byte up to `\n` (spaces and `=` allowed)".
    #[test]
    fn blocks_have_an_attribute_in_each_line() {
        let message = Message {
            form: Form::Block,
            body: b"mcmd=spawn\narg1=a b=c;d\narg2=\nargcnt=2",
        };
        let attributes = Attributes::parse(message, None);
        assert_eq!(attributes.command(), Some(&b"spawn"[..]));
        let numbered: Vec<_> = attributes.numbered("arg").collect();
        assert_eq!(
            numbered,
            [(1, Cow::Borrowed(&b"a b=c;d"[..])), (2, Cow::Borrowed(&b""[..]))]
        );
    }

    proptest! {
        /// No message makes the parser panic, and each value is at most as long as the message.
        #[test]
        fn garbage_is_parsed_without_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            for form in [Form::Block, Form::Frame, Form::Line] {
                let attributes = Attributes::parse(Message { form, body: &body }, None);
                for (key, value) in attributes.since("cmd") {
                    prop_assert!(key.len() + value.len() < body.len());
                }
            }
        }
    }
}
