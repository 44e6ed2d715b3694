//! What watches a GPU while a rank trains on it: CUPTI its kernels, NVML the device.

use std::path::Path;

use stepscope_collector::{
    Recorder,
    cupti::Activity,
    nvml::{DeviceSelector, LeftOut, SAMPLE_EVERY, Sampler},
};
use stepscope_traces::{CollectorNote, MemoryTimes, NvmlNote, StreamsNote};

use crate::backend::{Stream, cuda::Device};

/// Holds whatever of it there is: what cannot be watched is noted in the recording, and training goes on.
pub(crate) struct Watch {
    recorder: Recorder,
    activity: Option<Activity>,
    sampler: Option<Sampler>,
}

impl Watch {
    /// Begins to record kernels.
    pub(crate) fn start(recorder: &Recorder, device: &Device) -> Watch {
        let activity = Activity::start(recorder);
        if let Ok(activity) = &activity {
            for stream in Stream::ALL {
                if let Err(why) = activity.name_stream(device.stream(stream), stream.number()) {
                    recorder.note(CollectorNote::Streams(StreamsNote { why: why.to_string() }));
                }
            }
        }
        let ordered = match &activity {
            Ok(activity) => activity.order_memory_by(device.stream(Stream::Compute)),
            Err(why) => Err(why.clone()),
        };
        if let Err(why) = ordered {
            recorder.note(CollectorNote::MemoryTimes(MemoryTimes::Host { why: Some(why.to_string()) }));
        }
        Watch { recorder: recorder.clone(), activity: activity.ok(), sampler: None }
    }

    /// Begins to sample the device. Its first sample says what is in use before the rank takes memory.
    pub(crate) fn sample(&mut self, run: &Path, device: &DeviceSelector) {
        match Sampler::start(run, &self.recorder, device, SAMPLE_EVERY) {
            Ok(sampler) => self.sampler = sampler,
            Err(why) => self.recorder.note(CollectorNote::Nvml(NvmlNote::NotSampled { why: why.to_string() })),
        }
    }

    /// Records what is left, and lets go of the device. To be called when the device has done its work.
    pub(crate) fn finish(self) {
        let left_out = self.sampler.map_or_else(Vec::new, Sampler::finish);
        if let Some(note) = LeftOut::note(&left_out) {
            self.recorder.note(note);
        }
        drop(self.activity);
    }
}
