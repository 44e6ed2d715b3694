//! Numbers and lists of ranks that some versions write as texts.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};

use crate::ids::Rank;

/// A number, or a text of one. What is below zero stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count(pub(super) Option<u64>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Count, D::Error> {
        struct AsCount;

        impl Visitor<'_> for AsCount {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            fn visit_unit<E: Error>(self) -> Result<Count, E> {
                Ok(Count(None))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Count, E> {
                Ok(Count(u64::try_from(number).ok()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Count, E> {
                Ok(Count(Some(number)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Count, E> {
                Ok(Count(text.parse().ok()))
            }
        }

        deserializer.deserialize_any(AsCount)
    }
}

/// A list of ranks, or a text of one: `[0, 1]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RankNumbers(pub(super) Vec<Rank>);

impl<'de> Deserialize<'de> for RankNumbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RankNumbers, D::Error> {
        struct AsRanks;

        impl<'de> Visitor<'de> for AsRanks {
            type Value = RankNumbers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of ranks")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<RankNumbers, E> {
                let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
                let numbers = inner.split(',').map(str::trim).filter(|number| !number.is_empty());
                let ranks: Result<_, _> = numbers.map(|number| number.parse().map(Rank)).collect();
                ranks.map(RankNumbers).map_err(|_| E::custom("ranks that are no numbers"))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RankNumbers, A::Error> {
                let mut ranks = Vec::new();
                while let Some(rank) = items.next_element()? {
                    ranks.push(Rank(rank));
                }
                Ok(RankNumbers(ranks))
            }
        }

        deserializer.deserialize_any(AsRanks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranks_may_be_texts() {
        for (json, count) in [("3", Some(3)), ("\"24\"", Some(24)), ("-1", None), ("\"-1\"", None), ("null", None)] {
            assert_eq!(serde_json::from_str::<Count>(json).unwrap(), Count(count), "{json}");
        }
        for json in ["[0, 2]", "\"[0, 2]\"", "\"0,2\""] {
            assert_eq!(
                serde_json::from_str::<RankNumbers>(json).unwrap(),
                RankNumbers(vec![Rank(0), Rank(2)]),
                "{json}"
            );
        }
        assert!(serde_json::from_str::<RankNumbers>("\"[a]\"").is_err());
        assert_eq!(serde_json::from_str::<RankNumbers>("\"[]\"").unwrap(), RankNumbers::default());
    }
}
