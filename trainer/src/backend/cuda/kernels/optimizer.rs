//! The optimizer, and the sum of squares that the norm of gradients is from.

use cudarc::driver::sys::CUstream;

use super::{
    super::array::Array,
    Kernels, THREADS, blocks,
    check::{expect, expect_room, suffix, suffixes},
    launch::Launch,
    source::Source,
};
use crate::{
    backend::{AdamW, DType, operations::CLIP_EPSILON},
    error::TrainError,
};

/// Blocks that sum up squares at most: the same on all GPUs, so that the order of sums is too.
const SQUARE_BLOCKS: usize = 1056;
/// Threads that add up what they leave.
const ADDING_THREADS: usize = 1024;

/// The arrays that a step of the optimizer reads and writes: equally many numbers each.
#[derive(Clone, Copy)]
pub(crate) struct OptimizerArrays {
    /// Gradients, read.
    pub(crate) gradients: Array,
    /// Parameters in the precision they compute in.
    pub(crate) parameters: Array,
    /// Their master copy, where they have one.
    pub(crate) master: Option<Array>,
    /// Running means.
    pub(crate) first_moment: Array,
    /// Running squares.
    pub(crate) second_moment: Array,
    /// The squares of the gradient of all parameters, one number.
    pub(crate) squares: Array,
}

impl Kernels {
    /// One step of the optimizer.
    pub(crate) fn adamw(&self, stream: CUstream, settings: AdamW, arrays: OptimizerArrays) -> Result<(), TrainError> {
        let OptimizerArrays { gradients, parameters, master, first_moment, second_moment, squares } = arrays;
        let count = parameters.elements;
        expect("gradients", gradients, count, gradients.dtype)?;
        expect("the first moment", first_moment, count, DType::F32)?;
        expect("the second moment", second_moment, count, DType::F32)?;
        if let Some(master) = master {
            expect("the master copy", master, count, DType::F32)?;
        }
        let name = format!("adamw_{}", suffixes(parameters.dtype, gradients.dtype)?);
        expect("the squares", squares, 1, DType::F32)?;
        let AdamW { learning_rate, beta1, beta2, epsilon, weight_decay, clip, step } = settings;
        let bias = |beta: f64| 1.0 - beta.powf(step as f64);
        let launch = Launch::new(blocks(count), THREADS).array(gradients).array(parameters).optional(master);
        let launch = launch.array(first_moment).array(second_moment).optional(clip.map(|_| squares)).size(count);
        let numbers = [
            beta1,
            beta2,
            1.0 - beta1,
            1.0 - beta2,
            1.0 - learning_rate * weight_decay,
            learning_rate / bias(beta1),
            bias(beta2).sqrt().recip(),
            epsilon,
            clip.unwrap_or_default(),
            CLIP_EPSILON,
        ];
        let launch = numbers.into_iter().fold(launch, |launch, number| launch.float(number as f32));
        self.start(Source::Optimizer, &name, launch, stream)
    }

    /// What [`Kernels::add_sum_of_squares`] needs.
    pub(crate) fn sum_of_squares_workspace_bytes(elements: usize) -> usize {
        blocks(elements).min(SQUARE_BLOCKS) * size_of::<f32>()
    }

    /// Adds the squares of all numbers to one.
    pub(crate) fn add_sum_of_squares(
        &self,
        stream: CUstream,
        values: Array,
        total: Array,
        workspace: Array,
    ) -> Result<(), TrainError> {
        expect("the total", total, 1, DType::F32)?;
        expect_room(workspace, Kernels::sum_of_squares_workspace_bytes(values.elements))?;
        let blocks = blocks(values.elements).min(SQUARE_BLOCKS);
        let launch = Launch::new(blocks, THREADS).array(values).size(values.elements).array(workspace);
        self.start(Source::Optimizer, &format!("squares_{}", suffix(values.dtype)?), launch, stream)?;
        let launch = Launch::new(1, ADDING_THREADS).array(workspace).size(blocks).array(total);
        self.start(Source::Optimizer, "add_squares", launch, stream)
    }
}
