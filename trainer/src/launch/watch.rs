//! What watches a GPU while a rank trains on it: CUPTI its kernels, NVML the device.

use std::path::Path;

use stepscope_collector::{
    Recorder,
    cupti::Activity,
    nvml::{DeviceSelector, LeftOut, SAMPLE_EVERY, Sampler},
};
use stepscope_traces::MemoryTimes;

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
                    recorder.note("streams", format!("numbered by CUPTI: {why}"));
                }
            }
        }
        let ordered = match &activity {
            Ok(activity) => activity.order_memory_by(device.stream(Stream::Compute)),
            Err(why) => Err(why.clone()),
        };
        if let Err(why) = ordered {
            let (key, text) = MemoryTimes::Host { why: Some(why.to_string()) }.note();
            recorder.note(key, text);
        }
        Watch { recorder: recorder.clone(), activity: activity.ok(), sampler: None }
    }

    /// Begins to sample the device. Its first sample says what is in use before the rank takes memory.
    pub(crate) fn sample(&mut self, run: &Path, device: &DeviceSelector) {
        match Sampler::start(run, &self.recorder, device, SAMPLE_EVERY) {
            Ok(sampler) => self.sampler = sampler,
            Err(why) => self.recorder.note("nvml", format!("not sampled: {why}")),
        }
    }

    /// Records what is left, and lets go of the device. To be called when the device has done its work.
    pub(crate) fn finish(self) {
        let left_out = self.sampler.map_or_else(Vec::new, Sampler::finish);
        if let Some(line) = LeftOut::line(&left_out) {
            self.recorder.note("nvml", line);
        }
        drop(self.activity);
    }
}
