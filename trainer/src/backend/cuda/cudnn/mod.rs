//! Attention through cuDNN's fused kernels: forward and backward, causal, with grouped queries, in `bf16`.

mod backward;
mod descriptor;
mod forward;
mod graph;
mod layout;
mod library;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::Mutex;

use cudarc::driver::sys::CUstream;

use self::{
    backward::{Order, backward},
    forward::forward,
    graph::{Argument, Graph},
    library::{Handle, Library, Version, refused},
    plan::Plan,
};
use crate::{
    backend::{DType, Heads, cuda::array::Array},
    error::TrainError,
    lock::lock,
};

/// Until it, the last keys of sequences that do not fill a tile of this many went wrong in the backward pass.
const PARTIAL_TILES_SINCE: Version = Version(91501);
const TILE: usize = 128;

/// Bytes of memory that are undefined before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Workspace {
    /// For the forward pass.
    pub(crate) forward: usize,
    /// For the backward pass.
    pub(crate) backward: usize,
}

/// cuDNN on one device, and its plans for the shapes that were asked for.
pub(crate) struct FusedAttention {
    state: Mutex<State>,
}

struct State {
    /// With why not, where there is no plan.
    shapes: Vec<(Heads, Result<Plans, String>)>,
    handle: Handle,
    order: Order,
}

struct Plans {
    forward: Plan,
    backward: Plan,
}

impl FusedAttention {
    /// Loads cuDNN for the device whose context is current.
    pub(crate) fn open() -> Result<FusedAttention, TrainError> {
        FusedAttention::open_with(Order::Fixed)
    }

    /// As [`FusedAttention::open`], with a say in the order of sums.
    pub(crate) fn open_with(order: Order) -> Result<FusedAttention, TrainError> {
        let handle = Handle::new(Library::open()?)?;
        Ok(FusedAttention { state: Mutex::new(State { shapes: Vec::new(), handle, order }) })
    }

    /// Plans both passes, once per shape: what they need, or why cuDNN cannot do them.
    pub(crate) fn prepare(&self, heads: Heads, dtype: DType) -> Result<Workspace, TrainError> {
        if dtype != DType::Bf16 {
            return Err(refused("run attention through cuDNN", format!("it is done in bf16 only, not in {dtype:?}")));
        }
        lock(&self.state).with_plans(heads, |_, plans| {
            Ok(Workspace { forward: plans.forward.workspace_bytes(), backward: plans.backward.workspace_bytes() })
        })
    }

    /// Attention; `lse` takes the logarithms of sums, sequences × heads × tokens.
    pub(crate) fn forward(
        &self,
        stream: CUstream,
        heads: Heads,
        tensors: AttentionArrays,
        workspace: Array,
    ) -> Result<(), TrainError> {
        let arguments = tensors.arguments(heads)?;
        lock(&self.state)
            .with_plans(heads, |handle, plans| plans.forward.execute(handle, stream, &arguments, workspace))
    }

    /// Its gradient, from what [`FusedAttention::forward`] had and made.
    pub(crate) fn backward(
        &self,
        stream: CUstream,
        heads: Heads,
        tensors: AttentionArrays,
        (d_out, d_qkv): (Array, Array),
        workspace: Array,
    ) -> Result<(), TrainError> {
        let mut arguments = tensors.arguments(heads)?;
        check("the gradient of the output", d_out, heads.tokens() * heads.out_width(), DType::Bf16)?;
        arguments.push((Argument::OutGradient, d_out.address));
        arguments.extend(parts(
            heads,
            d_qkv,
            [Argument::QueryGradient, Argument::KeyGradient, Argument::ValueGradient],
        )?);
        lock(&self.state)
            .with_plans(heads, |handle, plans| plans.backward.execute(handle, stream, &arguments, workspace))
    }
}

/// What attention has and makes, on the device.
#[derive(Clone, Copy)]
pub(crate) struct AttentionArrays {
    /// Rotated queries and keys, and values.
    pub(crate) qkv: Array,
    /// Its output.
    pub(crate) out: Array,
    /// The logarithm of each row's sum: sequences × heads × tokens.
    pub(crate) lse: Array,
}

impl AttentionArrays {
    fn arguments(&self, heads: Heads) -> Result<Vec<(Argument, u64)>, TrainError> {
        check("the output", self.out, heads.tokens() * heads.out_width(), DType::Bf16)?;
        check("the logarithms", self.lse, heads.tokens() * heads.heads, DType::F32)?;
        let mut arguments = parts(heads, self.qkv, [Argument::Query, Argument::Key, Argument::Value])?.to_vec();
        arguments.extend([(Argument::Out, self.out.address), (Argument::Statistics, self.lse.address)]);
        Ok(arguments)
    }
}

/// Where queries, keys and values begin in their rows.
fn parts(heads: Heads, qkv: Array, arguments: [Argument; 3]) -> Result<[(Argument, u64); 3], TrainError> {
    check("qkv", qkv, heads.tokens() * heads.qkv_width(), DType::Bf16)?;
    let first = [0, heads.heads, heads.heads + heads.kv_heads];
    let bytes = |head: usize| (head * heads.head_dim * DType::Bf16.bytes()) as u64;
    Ok([0, 1, 2].map(|part| (arguments[part], qkv.address + bytes(first[part]))))
}

fn check(what: &str, array: Array, elements: usize, dtype: DType) -> Result<(), TrainError> {
    if array.elements != elements || array.dtype != dtype {
        let why = format!("{what} should be {elements} of {dtype:?} and is {} of {:?}", array.elements, array.dtype);
        return Err(refused("run attention through cuDNN", why));
    }
    Ok(())
}

impl State {
    /// Does something with the plans of a shape, which are made when there are none.
    fn with_plans<T>(
        &mut self,
        heads: Heads,
        work: impl FnOnce(&Handle, &Plans) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        if !self.shapes.iter().any(|(shape, _)| *shape == heads) {
            let plans = Plans::new(&self.handle, heads, self.order).map_err(|error| error.to_string());
            self.shapes.push((heads, plans));
        }
        match self.shapes.iter().find(|(shape, _)| *shape == heads) {
            Some((_, Ok(plans))) => work(&self.handle, plans),
            Some((_, Err(why))) => Err(refused("run attention through cuDNN", why)),
            None => Err(refused("run attention through cuDNN", "it has no plan")),
        }
    }
}

impl Plans {
    fn new(handle: &Handle, heads: Heads, order: Order) -> Result<Plans, TrainError> {
        let version = handle.library.version;
        if version < PARTIAL_TILES_SINCE && !heads.sequence.is_multiple_of(TILE) {
            let why = format!("version {version} computes wrong gradients of {} tokens", heads.sequence);
            return Err(refused("run attention through cuDNN", why));
        }
        let mut graph = Graph::new(&handle.library);
        forward(&mut graph, heads)?;
        let forward = Plan::new(handle, graph)?;
        let mut graph = Graph::new(&handle.library);
        backward(&mut graph, heads, order)?;
        Ok(Plans { forward, backward: Plan::new(handle, graph)? })
    }
}
