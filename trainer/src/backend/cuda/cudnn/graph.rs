//! What is to be computed, as a graph of operations on tensors.

use std::sync::Arc;

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind, cudnnDataType_t as DataType,
    cudnnPointwiseMode_t as Pointwise, cudnnReduceTensorOp_t as Reduction,
};

use super::{
    descriptor::Descriptor,
    layout::Layout,
    library::{Handle, Library},
};
use crate::{backend::Heads, error::TrainError};

/// How cuDNN may assume every address to be aligned.
pub(super) const ALIGNMENT: u64 = 16;

/// Tensors in scratch memory begin at multiples of it.
const SCRATCH_ALIGNMENT: usize = 256;

/// A tensor of a graph, by its number there.
#[derive(Clone, Copy)]
pub(super) struct Tensor(usize);

/// What callers pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    Query,
    Key,
    Value,
    Out,
    Statistics,
    OutGradient,
    QueryGradient,
    KeyGradient,
    ValueGradient,
}

/// Where a tensor that is not only between operations lies.
#[derive(Clone, Copy)]
pub(super) enum TensorLocation {
    /// Where the caller says.
    Argument(Argument),
    /// In the workspace, so many bytes from its beginning.
    Scratch(usize),
    /// On the host: one number.
    Constant(f32),
}

/// Where the result of an operation goes.
pub(super) enum Output {
    /// To the next operation: it has no memory.
    Next(DataType, Layout),
    /// To a tensor.
    To(Tensor),
}

/// To the next operation, as `f32`.
pub(super) fn single(layout: Layout) -> Output {
    Output::Next(DataType::CUDNN_DATA_FLOAT, layout)
}

/// To the next operation, as `bf16`, as products take their operands.
pub(super) fn brain(layout: Layout) -> Output {
    Output::Next(DataType::CUDNN_DATA_BFLOAT16, layout)
}

/// A graph while it grows.
pub(super) struct Graph {
    library: Arc<Library>,
    tensors: Vec<Descriptor>,
    operations: Vec<Descriptor>,
    /// What operations name besides tensors.
    settings: Vec<Descriptor>,
    /// By the number of the tensor.
    pub(super) places: Vec<(i64, TensorLocation)>,
    /// Bytes of the workspace that tensors take.
    pub(super) scratch_bytes: usize,
}

impl Graph {
    pub(super) fn new(library: &Arc<Library>) -> Graph {
        let library = library.clone();
        let (tensors, operations, settings, places) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Graph { library, tensors, operations, settings, places, scratch_bytes: 0 }
    }

    /// What the caller passes, in `bf16`.
    pub(super) fn argument(&mut self, argument: Argument, layout: Layout) -> Result<Tensor, TrainError> {
        self.tensor(DataType::CUDNN_DATA_BFLOAT16, layout, Some(TensorLocation::Argument(argument)))
    }

    /// The caller's logarithms of sums.
    pub(super) fn statistics(&mut self, layout: Layout) -> Result<Tensor, TrainError> {
        self.tensor(DataType::CUDNN_DATA_FLOAT, layout, Some(TensorLocation::Argument(Argument::Statistics)))
    }

    /// Numbers in the workspace, as `f32`.
    pub(super) fn scratch(&mut self, layout: Layout) -> Result<Tensor, TrainError> {
        let place = TensorLocation::Scratch(self.scratch_bytes);
        self.scratch_bytes += (layout.elements() * size_of::<f32>()).next_multiple_of(SCRATCH_ALIGNMENT);
        self.tensor(DataType::CUDNN_DATA_FLOAT, layout, Some(place))
    }

    /// One number.
    pub(super) fn constant(&mut self, value: f32) -> Result<Tensor, TrainError> {
        self.tensor(DataType::CUDNN_DATA_FLOAT, Layout::packed([1; 4]), Some(TensorLocation::Constant(value)))
    }

    /// A matrix product of each head.
    pub(super) fn product(&mut self, a: Tensor, b: Tensor, out: Output) -> Result<Tensor, TrainError> {
        let out = self.output(out)?;
        let settings = Descriptor::new(&self.library, Kind::CUDNN_BACKEND_MATMUL_DESCRIPTOR)?
            .with(Name::CUDNN_ATTR_MATMUL_COMP_TYPE, &[DataType::CUDNN_DATA_FLOAT])?
            .finalize()?;
        let operation = self
            .operation(Kind::CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)?
            .with_descriptors(Name::CUDNN_ATTR_OPERATION_MATMUL_ADESC, &[&self.tensors[a.0]])?
            .with_descriptors(Name::CUDNN_ATTR_OPERATION_MATMUL_BDESC, &[&self.tensors[b.0]])?
            .with_descriptors(Name::CUDNN_ATTR_OPERATION_MATMUL_CDESC, &[&self.tensors[out.0]])?
            .with_descriptors(Name::CUDNN_ATTR_OPERATION_MATMUL_DESC, &[&settings])?
            .finalize()?;
        self.settings.push(settings);
        self.operations.push(operation);
        Ok(out)
    }

    /// A function of one number.
    pub(super) fn map(&mut self, mode: Pointwise, of: Tensor, out: Output) -> Result<Tensor, TrainError> {
        let settings = self.pointwise_settings(mode, DataType::CUDNN_DATA_FLOAT)?.finalize()?;
        self.pointwise(settings, &[of], out)
    }

    /// A function of two numbers.
    pub(super) fn combine(
        &mut self,
        mode: Pointwise,
        left: Tensor,
        right: Tensor,
        out: Output,
    ) -> Result<Tensor, TrainError> {
        let settings = self.pointwise_settings(mode, DataType::CUDNN_DATA_FLOAT)?.finalize()?;
        self.pointwise(settings, &[left, right], out)
    }

    /// Scores, but minus infinity where queries do not see keys.
    pub(super) fn seen(&mut self, heads: Heads, scores: Tensor, layout: Layout) -> Result<Tensor, TrainError> {
        if heads.causal { self.causal(scores, layout) } else { Ok(scores) }
    }

    /// Scores, but minus infinity where a query would see a key that comes after it.
    ///
    /// cuDNN knows the whole pattern and skips what is masked.
    fn causal(&mut self, scores: Tensor, layout: Layout) -> Result<Tensor, TrainError> {
        let row = self.index(2, scores, layout)?;
        let column = self.index(3, scores, layout)?;
        let compare = self.pointwise_settings(Pointwise::CUDNN_POINTWISE_CMP_GE, DataType::CUDNN_DATA_BOOLEAN)?;
        let seen = Output::Next(DataType::CUDNN_DATA_BOOLEAN, layout);
        let seen = self.pointwise(compare.finalize()?, &[row, column], seen)?;
        let unseen = self.constant(f32::NEG_INFINITY)?;
        let select = self.pointwise_settings(Pointwise::CUDNN_POINTWISE_BINARY_SELECT, DataType::CUDNN_DATA_FLOAT)?;
        self.pointwise(select.finalize()?, &[scores, unseen, seen], single(layout))
    }

    /// Reduces the axes in which the output has one element, or one for several heads.
    pub(super) fn reduce(&mut self, with: Reduction, of: Tensor, out: Output) -> Result<Tensor, TrainError> {
        let out = self.output(out)?;
        let settings = Descriptor::new(&self.library, Kind::CUDNN_BACKEND_REDUCTION_DESCRIPTOR)?
            .with(Name::CUDNN_ATTR_REDUCTION_COMP_TYPE, &[DataType::CUDNN_DATA_FLOAT])?
            .with(Name::CUDNN_ATTR_REDUCTION_OPERATOR, &[with])?
            .finalize()?;
        let operation = self
            .operation(Kind::CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)?
            .with_descriptors(Name::CUDNN_ATTR_OPERATION_REDUCTION_XDESC, &[&self.tensors[of.0]])?
            .with_descriptors(Name::CUDNN_ATTR_OPERATION_REDUCTION_YDESC, &[&self.tensors[out.0]])?
            .with_descriptors(Name::CUDNN_ATTR_OPERATION_REDUCTION_DESC, &[&settings])?
            .finalize()?;
        self.settings.push(settings);
        self.operations.push(operation);
        Ok(out)
    }

    /// The same numbers, seen in another layout.
    pub(super) fn reshape(&mut self, of: Tensor, out: Output) -> Result<Tensor, TrainError> {
        let out = self.output(out)?;
        let operation = self
            .operation(Kind::CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)?
            .with_descriptors(Name::CUDNN_ATTR_OPERATION_RESHAPE_XDESC, &[&self.tensors[of.0]])?
            .with_descriptors(Name::CUDNN_ATTR_OPERATION_RESHAPE_YDESC, &[&self.tensors[out.0]])?
            .finalize()?;
        self.operations.push(operation);
        Ok(out)
    }

    /// The whole of it, for cuDNN to look at.
    pub(super) fn finish(&self, handle: &Handle) -> Result<Descriptor, TrainError> {
        let operations: Vec<&Descriptor> = self.operations.iter().collect();
        Descriptor::new(&self.library, Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
            .with_handle(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle)?
            .with_descriptors(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations)?
            .finalize()
    }

    /// Each element's index along an axis of what it is made like.
    fn index(&mut self, axis: i64, like: Tensor, layout: Layout) -> Result<Tensor, TrainError> {
        let settings = self
            .pointwise_settings(Pointwise::CUDNN_POINTWISE_GEN_INDEX, DataType::CUDNN_DATA_FLOAT)?
            .with(Name::CUDNN_ATTR_POINTWISE_AXIS, &[axis])?
            .finalize()?;
        self.pointwise(settings, &[like], Output::Next(DataType::CUDNN_DATA_INT32, layout))
    }

    fn pointwise_settings(&self, mode: Pointwise, precision: DataType) -> Result<Descriptor, TrainError> {
        Descriptor::new(&self.library, Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
            .with(Name::CUDNN_ATTR_POINTWISE_MODE, &[mode])?
            .with(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, &[precision])
    }

    fn pointwise(&mut self, settings: Descriptor, of: &[Tensor], out: Output) -> Result<Tensor, TrainError> {
        const OPERANDS: [Name; 3] = [
            Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
            Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
            Name::CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
        ];
        let out = self.output(out)?;
        let mut operation = self
            .operation(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?
            .with_descriptors(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[&settings])?
            .with_descriptors(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[&self.tensors[out.0]])?;
        for (name, operand) in OPERANDS.into_iter().zip(of) {
            operation = operation.with_descriptors(name, &[&self.tensors[operand.0]])?;
        }
        self.operations.push(operation.finalize()?);
        self.settings.push(settings);
        Ok(out)
    }

    fn operation(&self, kind: Kind) -> Result<Descriptor, TrainError> {
        Descriptor::new(&self.library, kind)
    }

    fn output(&mut self, output: Output) -> Result<Tensor, TrainError> {
        match output {
            Output::Next(dtype, layout) => self.tensor(dtype, layout, None),
            Output::To(tensor) => Ok(tensor),
        }
    }

    fn tensor(&mut self, dtype: DataType, layout: Layout, place: Option<TensorLocation>) -> Result<Tensor, TrainError> {
        let number = self.tensors.len() as i64;
        let by_value = matches!(place, Some(TensorLocation::Constant(_)));
        let tensor = Descriptor::new(&self.library, Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
            .with(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, &[dtype])?
            .with(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &layout.sizes)?
            .with(Name::CUDNN_ATTR_TENSOR_STRIDES, &layout.strides)?
            .with(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[number])?
            .with(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[ALIGNMENT as i64])?
            .with(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[place.is_none()])?
            .with(Name::CUDNN_ATTR_TENSOR_IS_BY_VALUE, &[by_value])?
            .finalize()?;
        self.places.extend(place.map(|place| (number, place)));
        self.tensors.push(tensor);
        Ok(Tensor(self.tensors.len() - 1))
    }
}
