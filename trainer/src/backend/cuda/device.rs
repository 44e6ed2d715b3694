//! A GPU: its context, its streams, and what it is.

use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaStream, DriverError,
    sys::{CUdevice_attribute as Attribute, CUresult},
};
use stepscope_collector::{
    libraries::{self, Library},
    nvml::DeviceSelector,
};
use stepscope_plan::{Device as KnownDevice, Precision};

use super::mark::{Mark, Marks};
use crate::{backend::Stream, error::TrainError};

/// A GPU that this process has a context on.
pub(crate) struct Device {
    context: Arc<CudaContext>,
    /// By [`Stream`].
    streams: [Arc<CudaStream>; Stream::ALL.len()],
    marks: Marks,
}

impl Device {
    /// How many GPUs there are; an error says why there are none.
    pub(crate) fn count() -> Result<usize, TrainError> {
        libraries::open(Library::Cuda).map_err(|why| TrainError::NoGpu { why: Some(why) })?;
        let count = CudaContext::device_count().map_err(|error| match error {
            DriverError(CUresult::CUDA_ERROR_NO_DEVICE) => TrainError::NoGpu { why: None },
            error => {
                let said =
                    error.error_string().map_or_else(|_| format!("{error:?}"), |text| text.to_string_lossy().into());
                TrainError::Settings(format!("CUDA fails to initialize: {said}; see `stepscope doctor`"))
            }
        })?;
        Ok(count.max(0) as usize)
    }

    /// Opens the GPU with this number.
    pub(crate) fn open(ordinal: usize) -> Result<Device, TrainError> {
        let count = Device::count()?;
        if ordinal >= count {
            return Err(TrainError::Settings(format!("there is no GPU {ordinal}; CUDA sees {count}")));
        }
        let opened = CudaContext::new(ordinal).and_then(|context| {
            let streams = [context.new_stream()?, context.new_stream()?, context.new_stream()?];
            Ok(Device { marks: Marks::new(context.clone()), context, streams })
        });
        opened.map_err(TrainError::device(format!("open device {ordinal}")))
    }

    pub(crate) fn stream(&self, stream: Stream) -> &Arc<CudaStream> {
        &self.streams[stream as usize]
    }

    /// Makes this device the one that the calling thread talks to.
    pub(crate) fn enter(&self) -> Result<(), TrainError> {
        self.context.bind_to_thread().map_err(TrainError::device("enter the context"))
    }

    /// Marks the end of what a stream has been given so far.
    pub(crate) fn record(&self, stream: Stream) -> Result<Mark, TrainError> {
        self.marks.make(self.stream(stream)).map_err(TrainError::device("record an event"))
    }

    /// Lets a stream go on only after a place in another.
    pub(crate) fn wait(&self, stream: Stream, mark: &Mark) -> Result<(), TrainError> {
        mark.hold(self.stream(stream)).map_err(TrainError::device("wait for an event"))
    }

    /// Waits until everything is done.
    pub(crate) fn synchronize(&self) -> Result<(), TrainError> {
        self.context.synchronize().map_err(TrainError::device("finish the work"))
    }

    /// Major and minor version of what it can do.
    pub(crate) fn capability(&self) -> Result<(u32, u32), TrainError> {
        let capability = self.context.compute_capability().map_err(TrainError::device("ask for the capability"))?;
        Ok((capability.0.unsigned_abs(), capability.1.unsigned_abs()))
    }

    /// Shared memory that a block of a kernel can ask for.
    pub(crate) fn shared_room(&self) -> Result<usize, TrainError> {
        let most = Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let room = self.context.attribute(most).map_err(TrainError::device("ask for the shared memory"))?;
        Ok(room.unsigned_abs() as usize)
    }

    /// What no other GPU of any machine is called.
    pub(crate) fn identity(&self) -> Result<[u8; 16], TrainError> {
        let uuid = self.context.uuid().map_err(TrainError::device("ask for the identity"))?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }

    /// Its name for NVML, whose numbers are others.
    pub(crate) fn selector(&self) -> Result<DeviceSelector, TrainError> {
        self.identity().map(DeviceSelector::from_uuid_bytes)
    }

    /// The bytes of its memory.
    pub(crate) fn total_memory(&self) -> Result<u64, TrainError> {
        let total = self.context.total_mem().map_err(TrainError::device("ask for the memory"))?;
        Ok(total as u64)
    }

    /// What its driver calls it.
    pub(crate) fn name(&self) -> Result<String, TrainError> {
        self.context.name().map_err(TrainError::device("ask for the name"))
    }

    /// What it is, for a recording of one of the ranks on it. A device that nobody has listed has no peak.
    pub(crate) fn describe(&self, precision: Precision, ranks: u64) -> Result<stepscope_traces::Device, TrainError> {
        let name = self.name()?;
        let memory = self.total_memory()?;
        let peak_flops = KnownDevice::named(&name).ok().map(|device| device.peaks.of(precision) / ranks as f64);
        Ok(stepscope_traces::Device { name, memory_bytes: Some(memory), peak_flops })
    }
}
