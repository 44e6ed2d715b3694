//! Numbers of several ranks as one: in the order of the ranks, rounded once.

use std::ops::Range;

use stepscope_plan::shard;

use super::Reduction;
use crate::backend::cpu::Element;

/// The elements that one of `parts` members has of a tensor.
pub(crate) fn part(elements: usize, parts: usize, index: usize) -> Range<usize> {
    let range = shard(elements as u64, parts as u64, index as u64);
    range.start as usize..range.end as usize
}

/// What has been reduced so far.
pub(crate) struct Reducer<E: Element> {
    reduction: Reduction,
    so_far: Option<Vec<E::Sum>>,
}

impl<E: Element> Reducer<E> {
    pub(crate) fn new(reduction: Reduction) -> Reducer<E> {
        Reducer { reduction, so_far: None }
    }

    /// Takes the next rank's numbers.
    pub(crate) fn add(&mut self, values: &[E]) {
        let Some(so_far) = &mut self.so_far else {
            self.so_far = Some(values.iter().map(|value| value.widen()).collect());
            return;
        };
        let pairs = so_far.iter_mut().zip(values);
        match self.reduction {
            Reduction::Sum => pairs.for_each(|(sum, value)| *sum += value.widen()),
            Reduction::Maximum => pairs.for_each(|(most, value)| {
                if value.widen() > *most {
                    *most = value.widen();
                }
            }),
        }
    }

    pub(crate) fn finish(self) -> Vec<E> {
        self.so_far.unwrap_or_default().into_iter().map(E::narrow).collect()
    }
}
