//! Attention through cuDNN's fused kernels: forward and backward, causal or to all keys, with grouped queries, in `bf16`.

mod arguments;
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

pub(crate) use self::backward::Order;
use self::{
    backward::backward,
    forward::forward,
    graph::Graph,
    library::{ATTENTION, Handle, Library, Version, refused},
    plan::Plan,
};
use crate::{
    backend::{
        DType, Heads,
        cuda::array::{Array, AttentionArrays},
    },
    error::TrainError,
    lock::lock,
};

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
    shapes: Vec<(Heads, Result<Plans, TrainError>)>,
    handle: Handle,
    order: Order,
}

struct Plans {
    forward: Plan,
    backward: Plan,
}

impl FusedAttention {
    /// Loads cuDNN for the device whose context is current.
    pub(crate) fn open(order: Order) -> Result<FusedAttention, TrainError> {
        let handle = Handle::new(Library::open()?)?;
        Ok(FusedAttention { state: Mutex::new(State { shapes: Vec::new(), handle, order }) })
    }

    /// Plans both passes, once per shape: what they need, or why cuDNN cannot do them.
    pub(crate) fn prepare(&self, heads: Heads, dtype: DType) -> Result<Workspace, TrainError> {
        if dtype != DType::Bf16 {
            return Err(refused(ATTENTION, format!("only bf16 is supported, not {dtype:?}")));
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
        let arguments = tensors.arguments_of_gradient(heads, d_out, d_qkv)?;
        lock(&self.state)
            .with_plans(heads, |handle, plans| plans.backward.execute(handle, stream, &arguments, workspace))
    }
}

impl State {
    /// Does something with the plans of a shape, which are made when there are none.
    fn with_plans<T>(
        &mut self,
        heads: Heads,
        work: impl FnOnce(&Handle, &Plans) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        if !self.shapes.iter().any(|(shape, _)| *shape == heads) {
            self.shapes.push((heads, Plans::new(&self.handle, heads, self.order)));
        }
        match self.shapes.iter().find(|(shape, _)| *shape == heads) {
            Some((_, Ok(plans))) => work(&self.handle, plans),
            Some((_, Err(TrainError::Device { action, why }))) => Err(refused(action, why)),
            Some((_, Err(error))) => Err(refused(ATTENTION, error)),
            None => Err(refused(ATTENTION, "it has no plan")),
        }
    }
}

impl Plans {
    fn new(handle: &Handle, heads: Heads, order: Order) -> Result<Plans, TrainError> {
        if let Some(why) = not_to_be_trusted(handle.library.version, heads) {
            return Err(refused(ATTENTION, why));
        }
        let mut graph = Graph::new(&handle.library);
        forward(&mut graph, heads)?;
        let forward = Plan::new(handle, graph)?;
        let mut graph = Graph::new(&handle.library);
        backward(&mut graph, heads, order)?;
        Ok(Plans { forward, backward: Plan::new(handle, graph)? })
    }
}

/// Shapes for which cuDNN has kernels that its own front end does not use as they are.
fn not_to_be_trusted(version: Version, heads: Heads) -> Option<String> {
    const TILE: usize = 128;
    const PARTIAL_TILES_SINCE: Version = Version(91501);
    if heads.sequence == 1 {
        return Some("it has no gradients of a single token".into());
    }
    let whole = heads.sequence.is_multiple_of(TILE);
    (!whole && version < PARTIAL_TILES_SINCE).then(|| {
        format!("version {version} needs sequence lengths that are multiples of {TILE}; {PARTIAL_TILES_SINCE} does not")
    })
}
