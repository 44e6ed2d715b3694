//! Room for intermediate values that outlives a call.

use super::Real;

/// A buffer that grows to the largest size asked of it, so that repeated calls allocate nothing.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Of the largest numbers there are, so that it is aligned for all of them.
    room: Vec<f64>,
}

impl Scratch {
    /// Where it is and how much memory it holds, once it does.
    pub(crate) fn place(&self) -> Option<(u64, u64)> {
        let bytes = (self.room.capacity() * size_of::<f64>()) as u64;
        (bytes > 0).then_some((self.room.as_ptr() as u64, bytes))
    }

    /// Buffers of these lengths, with whatever the last use left in them.
    pub(crate) fn take<S: Real, const N: usize>(&mut self, lengths: [usize; N]) -> [&mut [S]; N] {
        let total = (lengths.iter().sum::<usize>() * size_of::<S>()).div_ceil(size_of::<f64>());
        if self.room.len() < total {
            self.room.reserve_exact(total - self.room.len());
            self.room.resize(total, 0.0);
        }
        let mut rest: &mut [S] = bytemuck::cast_slice_mut(&mut self.room);
        lengths.map(|length| rest.split_off_mut(..length).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_to_the_largest_use_and_stays() {
        let mut scratch = Scratch::default();
        assert_eq!(scratch.place(), None);
        assert_eq!(scratch.take::<f32, 3>([3, 0, 4]).map(|part| part.len()), [3, 0, 4]);
        let place = scratch.place();
        assert_eq!(place.map(|(_, bytes)| bytes), Some(32));
        assert_eq!(scratch.take::<f64, 1>([2]).map(|part| part.len()), [2]);
        assert_eq!(scratch.place(), place);
    }
}
