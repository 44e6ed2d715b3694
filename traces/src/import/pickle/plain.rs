//! A pickle as serde sees data, for documents that are small enough to be kept whole.

use std::{cell::Cell, fmt, io::Read};

use serde::{
    Deserializer,
    de::{
        Error, IntoDeserializer, Visitor,
        value::{MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};

use super::{
    machine::{self, Ending},
    value::{Fold, Objects, TextId, Value},
};
use crate::error::PickleError;

/// Looks at a value that are always allowed.
const LOOKS_AT_LEAST: u64 = 1 << 20;

/// Others are as many for each value: what is shared is looked at again for each that has it.
const LOOKS_PER_VALUE: u64 = 16;

/// All of a pickle.
pub(in super::super) struct PlainPickle {
    value: Value,
    objects: Objects<()>,
    texts: Vec<String>,
    ending: Ending,
    looks_left: Cell<u64>,
}

impl PlainPickle {
    pub(in super::super) fn read(reader: impl Read) -> Result<PlainPickle, PickleError> {
        let mut texts = Texts::default();
        let pickle = machine::read(reader, &mut texts)?;
        let values = (pickle.objects.values() + texts.0.len()) as u64;
        Ok(PlainPickle {
            value: pickle.value,
            objects: pickle.objects,
            texts: texts.0,
            ending: pickle.ending,
            looks_left: Cell::new(LOOKS_AT_LEAST + LOOKS_PER_VALUE * values),
        })
    }

    /// Its outermost value.
    pub(in super::super) fn root(&self) -> Node<'_> {
        Node { value: self.value, pickle: self }
    }

    /// How many bytes it lacks, if it was cut off.
    pub(in super::super) fn missing_bytes(&self) -> Option<u64> {
        match self.ending {
            Ending::Whole => None,
            Ending::Cut { missing_bytes } => Some(missing_bytes),
        }
    }
}

/// Keeps every text, and folds nothing.
#[derive(Default)]
struct Texts(Vec<String>);

impl Fold for Texts {
    type Record = ();

    fn text(&mut self, text: &str) -> TextId {
        self.0.push(text.to_owned());
        // The machine stops long before there are more than that.
        TextId(self.0.len() as u32 - 1)
    }

    fn dict(&mut self, _: &[Value], _: &Objects<()>) -> Option<()> {
        None
    }

    fn list(&mut self, _: Option<()>, _: &[Value], _: &Objects<()>) -> Option<()> {
        None
    }
}

/// A value of a pickle, in its place.
#[derive(Clone, Copy)]
pub(in super::super) struct Node<'a> {
    value: Value,
    pickle: &'a PlainPickle,
}

impl<'a> Node<'a> {
    /// What is under a key, where this is a dict that has it.
    pub(in super::super) fn get(self, key: &str) -> Option<Node<'a>> {
        let items = self.pickle.objects.dict(self.value)?;
        let has_key =
            |pair: &&[Value]| matches!(pair[0], Value::Text(TextId(id)) if self.pickle.texts[id as usize] == key);
        items.chunks_exact(2).rfind(has_key).map(|pair| self.at(pair[1]))
    }

    /// What is in a list.
    pub(in super::super) fn items(self) -> impl Iterator<Item = Node<'a>> {
        self.pickle.objects.items(self.value).unwrap_or_default().iter().map(move |value| self.at(*value))
    }

    fn at(self, value: Value) -> Node<'a> {
        Node { value, ..self }
    }
}

/// Why a value is not what was asked for.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(in super::super) struct NotThat(String);

impl Error for NotThat {
    fn custom<T: fmt::Display>(why: T) -> NotThat {
        NotThat(why.to_string())
    }
}

impl<'de> IntoDeserializer<'de, NotThat> for Node<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Node<'_> {
    type Error = NotThat;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotThat> {
        let left = &self.pickle.looks_left;
        left.set(left.get().checked_sub(1).ok_or_else(|| NotThat("it repeats itself without end".into()))?);
        match self.value {
            Value::None => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Integer(value) => visitor.visit_i64(value),
            Value::Float(value) => visitor.visit_f64(value),
            Value::Text(TextId(id)) => visitor.visit_str(&self.pickle.texts[id as usize]),
            Value::List(_) | Value::Tuple(_) => visitor.visit_seq(SeqDeserializer::new(self.items())),
            Value::Dict(_) => {
                let items = self.pickle.objects.dict(self.value).unwrap_or_default();
                let pairs = items.chunks_exact(2).map(|pair| (self.at(pair[0]), self.at(pair[1])));
                visitor.visit_map(MapDeserializer::new(pairs))
            }
            Value::Other(what) => Err(NotThat(format!("it has {what}"))),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotThat> {
        match self.value {
            Value::None => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotThat> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Call {
        name: String,
        pair: (i64, Option<f64>),
    }

    #[test]
    fn a_pickle_is_read_into_what_is_asked_for() {
        // {"name": "a", "pair": (1, None), "more": [True]}
        let bytes = b"\x80\x02}(X\x04\0\0\0nameX\x01\0\0\0aX\x04\0\0\0pairK\x01N\x86X\x04\0\0\0more](\x88eu.";
        let pickle = PlainPickle::read(bytes.as_slice()).unwrap();
        assert_eq!(Call::deserialize(pickle.root()).unwrap(), Call { name: "a".into(), pair: (1, None) });
        assert!(pickle.root().get("more").is_some_and(|more| more.items().count() == 1));
        assert_eq!(pickle.missing_bytes(), None);
        assert!(BTreeMap::<String, i64>::deserialize(pickle.root()).is_err());
    }

    #[test]
    fn what_has_itself_many_times_over_is_refused() {
        // Each of 40 lists has the one before it twice.
        let mut bytes = b"\x80\x02]q\0".to_vec();
        (0..40_u8).for_each(|list| bytes.extend([b'0', b']', b'q', list + 1, b'(', b'h', list, b'h', list, b'e']));
        bytes.push(b'.');
        let pickle = PlainPickle::read(bytes.as_slice()).unwrap();
        let error = serde_json::Value::deserialize(pickle.root()).unwrap_err();
        assert!(error.to_string().contains("without end"), "{error}");
    }
}
