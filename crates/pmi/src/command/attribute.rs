//! The types that a field in the table may have.

use std::collections::BTreeMap;

use bstr::BString;

use crate::{
    Form,
    wire::{Attributes, MessageWriter},
};

/// A type of the table's fields.
pub(super) trait Attribute: Sized {
    /// The value under the first of `keys` that is there; `None` if it is missing or malformed.
    fn read(attributes: &Attributes<'_>, keys: &[&str]) -> Option<Self>;
    fn write(&self, key: &str, writer: &mut MessageWriter<'_>);

    /// The value where a form does not have the attribute; `None` if there has to be one.
    fn absent() -> Option<Self> {
        None
    }
}

impl Attribute for BString {
    fn read(attributes: &Attributes<'_>, keys: &[&str]) -> Option<Self> {
        let value = keys.iter().find_map(|key| attributes.value(key))?;
        Some(value.into_owned().into())
    }

    fn write(&self, key: &str, writer: &mut MessageWriter<'_>) {
        writer.pair(key, self);
    }
}

impl<T: Attribute> Attribute for Option<T> {
    fn read(attributes: &Attributes<'_>, keys: &[&str]) -> Option<Self> {
        if keys.iter().all(|key| attributes.value(key).is_none()) {
            return Some(None);
        }
        T::read(attributes, keys).map(Some)
    }

    fn write(&self, key: &str, writer: &mut MessageWriter<'_>) {
        if let Some(value) = self {
            value.write(key, writer);
        }
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

/// "Booleans are exactly `TRUE` / `FALSE`."
impl Attribute for bool {
    fn read(attributes: &Attributes<'_>, keys: &[&str]) -> Option<Self> {
        match &*keys.iter().find_map(|key| attributes.value(key))? {
            b"TRUE" => Some(true),
            b"FALSE" => Some(false),
            _ => None,
        }
    }

    fn write(&self, key: &str, writer: &mut MessageWriter<'_>) {
        writer.pair(key, if *self { b"TRUE" } else { b"FALSE" });
    }
}

macro_rules! number_attribute {
    ($($type:ty),*) => { $(
        impl Attribute for $type {
            fn read(attributes: &Attributes<'_>, keys: &[&str]) -> Option<Self> {
                let value = keys.iter().find_map(|key| attributes.value(key))?;
                std::str::from_utf8(&value).ok()?.trim().parse().ok()
            }

            fn write(&self, key: &str, writer: &mut MessageWriter<'_>) {
                writer.pair(key, self.to_string().as_bytes());
            }
        }
    )* };
}

number_attribute!(i32, u32);

/// Keys and values that a message carries as a list: `preput` or `info`, each form with its own words for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(pub Vec<(BString, BString)>);

/// The words for a list of pairs on the wire: the name of its number of pairs, and the prefixes before the
/// index of each key and value.
#[derive(Clone, Copy)]
pub(super) struct PairKeys {
    pub(super) count: &'static str,
    pub(super) key: &'static str,
    pub(super) value: &'static str,
}

impl PairKeys {
    /// Of the list that the table calls `list`.
    pub(super) fn new(list: &str, form: Form) -> Self {
        let [count, key, value] = match (list, form) {
            ("preput", Form::Frame) => ["preputcount", "ppkey", "ppval"],
            ("preput", _) => ["preput_num", "preput_key_", "preput_val_"],
            (_, Form::Frame) => ["infokeycount", "infokey", "infoval"],
            (_, _) => ["info_num", "info_key_", "info_val_"],
        };
        Self { count, key, value }
    }
}

impl Attribute for Pairs {
    /// Pairs are numbered from 0; where the number of pairs is missing there are none.
    fn read(attributes: &Attributes<'_>, keys: &[&str]) -> Option<Self> {
        let words = PairKeys::new(keys[0], attributes.form());
        let Some(count) = Option::<u32>::read(attributes, &[words.count])? else {
            return Some(Self::default());
        };
        let mut values: BTreeMap<_, _> = attributes.numbered(words.value).collect();
        let mut pairs = BTreeMap::new();
        for (index, key) in attributes.numbered(words.key).filter(|(index, _)| *index < count) {
            let value = values.remove(&index)?;
            pairs.insert(index, (key.into_owned().into(), value.into_owned().into()));
        }
        (pairs.len() == count as usize).then(|| Self(pairs.into_values().collect()))
    }

    fn write(&self, key: &str, writer: &mut MessageWriter<'_>) {
        let words = PairKeys::new(key, writer.form());
        writer.pair(words.count, self.0.len().to_string().as_bytes());
        for (index, (key, value)) in self.0.iter().enumerate() {
            writer.pair(&format!("{}{index}", words.key), key);
            writer.pair(&format!("{}{index}", words.value), value);
        }
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}
