//! How cuDNN will compute a graph, and the computing.
#![allow(unsafe_code, reason = "cuDNN is handed addresses of the device")]

use std::ffi::c_void;

use cudarc::{
    cudnn::sys::{
        cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind, cudnnBackendHeurMode_t as Heuristics,
    },
    driver::sys::CUstream,
};

use super::{
    descriptor::Descriptor,
    graph::{ALIGNMENT, Argument, Graph, TensorLocation},
    library::{ATTENTION, Handle, refused},
};
use crate::{backend::cuda::array::Array, error::TrainError};

/// A graph and the kernels that cuDNN has for it.
pub(super) struct Plan {
    plan: Descriptor,
    /// What the plan, and the engine it was made of, name.
    _engine: (Descriptor, Descriptor),
    graph: Graph,
    workspace_bytes: usize,
}

impl Plan {
    /// The first that cuDNN advises and can do.
    pub(super) fn new(handle: &Handle, graph: Graph) -> Result<Plan, TrainError> {
        let whole = graph.finish(handle)?;
        let heuristics = Descriptor::new(&handle.library, Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
            .with_descriptors(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[&whole])?
            .with(Name::CUDNN_ATTR_ENGINEHEUR_MODE, &[Heuristics::CUDNN_HEUR_MODE_A])?
            .finalize()?;
        let engines =
            heuristics.results(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)?;
        let mut why = refused(ATTENTION, "it has no kernel for this");
        for engine in engines {
            let plan = Descriptor::new(&handle.library, Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
                .with_descriptors(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[&engine])?
                .finalize();
            match plan {
                Ok(plan) => {
                    let bytes = plan.number(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
                    let workspace_bytes = graph.scratch_bytes + usize::try_from(bytes).unwrap_or(0);
                    return Ok(Plan { plan, _engine: (engine, whole), graph, workspace_bytes });
                }
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// Bytes it needs besides its arguments.
    pub(super) fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// Queues the work on a stream.
    pub(super) fn execute(
        &self,
        handle: &Handle,
        stream: CUstream,
        arguments: &[(Argument, u64)],
        workspace: Array,
    ) -> Result<(), TrainError> {
        if workspace.elements * workspace.dtype.bytes() < self.workspace_bytes {
            return Err(refused(ATTENTION, format!("it needs {} bytes", self.workspace_bytes)));
        }
        let mut addresses: Vec<*const c_void> = Vec::new();
        for (_, place) in &self.graph.places {
            addresses.push(match place {
                TensorLocation::Constant(value) => std::ptr::from_ref(value).cast(),
                TensorLocation::Scratch(offset) => on_device(workspace.address + *offset as u64)?,
                TensorLocation::Argument(of) => {
                    let found = arguments.iter().find(|(argument, _)| argument == of);
                    let (_, address) = found.ok_or_else(|| refused(ATTENTION, format!("{of:?} is missing")))?;
                    on_device(*address)?
                }
            });
        }
        let numbers: Vec<i64> = self.graph.places.iter().map(|(number, _)| *number).collect();
        let rest = on_device(workspace.address + self.graph.scratch_bytes as u64)?;
        let variant_pack = Descriptor::new(&handle.library, Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .with(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &numbers)?
            .with(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &addresses)?
            .with(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[rest])?
            .finalize()?;
        handle.set_stream(stream)?;
        // SAFETY: the arrays are as long as the layouts say, which `arguments.rs` checks, and as arrays of a device they
        // stay until the stream is done with them. Constants are read before this returns.
        unsafe { self.plan.execute(handle, &variant_pack) }
    }
}

fn on_device(address: u64) -> Result<*const c_void, TrainError> {
    if !address.is_multiple_of(ALIGNMENT) {
        return Err(refused(ATTENTION, format!("address {address:#x} is not aligned")));
    }
    Ok(std::ptr::without_provenance(address as usize))
}
