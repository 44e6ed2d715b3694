//! Which GPU this process uses, and what it is.

use std::{
    env,
    ffi::c_int,
    sync::{
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Release},
        },
        mpsc,
    },
    time::Duration,
};

use cudarc::driver::{
    result::{ctx, device, primary_ctx},
    sys::{self, CUresult, CUuuid},
};
use stepscope_collector::{
    libraries::{self, Library},
    nvml::DeviceSelector,
    quiet_thread,
};
use stepscope_plan::{Device as KnownDevice, Precision};
use stepscope_traces::Device;

/// A GPU that this process uses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gpu {
    pub(crate) selector: DeviceSelector,
    pub(crate) description: Device,
    /// The others that it uses.
    pub(crate) beside: usize,
}

impl Gpu {
    /// The one that this process uses, as far as that can be seen by now. A rank with several uses the one that its
    /// launcher numbers, if it does.
    pub(crate) fn in_use() -> Option<Gpu> {
        libraries::open(Library::Cuda).ok()?;
        // CUDA has not begun, or there are none.
        let count = device::get_count().ok()?;
        let used: Vec<c_int> = (0..count).filter(|ordinal| count == 1 || has_context(*ordinal)).collect();
        let local = env::var("LOCAL_RANK").ok().and_then(|rank| rank.parse().ok());
        let chosen = choose(&used, local)?;
        describe(chosen, used.len() - 1)
    }
}

fn choose(used: &[c_int], local: Option<c_int>) -> Option<c_int> {
    used.iter().copied().find(|ordinal| Some(*ordinal) == local).or(used.first().copied())
}

/// Whether this process has the context on a device that runtimes share.
fn has_context(ordinal: c_int) -> bool {
    let Ok(device) = device::get(ordinal) else { return false };
    let (mut flags, mut active) = (0, 0);
    // SAFETY: there are two places to write to.
    let result = unsafe { sys::cuDevicePrimaryCtxGetState(device, &mut flags, &mut active) };
    result == CUresult::CUDA_SUCCESS && active != 0
}

fn describe(ordinal: c_int, beside: usize) -> Option<Gpu> {
    let device = device::get(ordinal).ok()?;
    let name = device::get_name(device).ok()?;
    let CUuuid { bytes } = device::get_uuid(device).ok()?;
    // SAFETY: the device is one that CUDA has just given.
    let memory_bytes = unsafe { device::total_mem(device) }.ok().map(|bytes| bytes as u64);
    // What precision the program computes in is not known; this is what most train in, and the run says so.
    let peak_flops = KnownDevice::named(&name).ok().map(|device| device.peaks.of(Precision::Bf16));
    let selector = DeviceSelector::from_uuid_bytes(bytes.map(|byte| byte as u8));
    Some(Gpu { selector, description: Device { name, memory_bytes, peak_flops }, beside })
}

/// Waits until the GPUs have finished the work of this process, however long that takes.
pub(crate) fn wait_until_done() {
    if libraries::open(Library::Cuda).is_err() {
        return;
    }
    let count = device::get_count().unwrap_or(0);
    for device in (0..count).filter(|ordinal| has_context(*ordinal)).filter_map(|ordinal| device::get(ordinal).ok()) {
        // SAFETY: there is such a context, which this call holds on to for as long as it uses it; it is the thread's own
        // matter which one is current there.
        unsafe {
            if let Ok(context) = primary_ctx::retain(device) {
                let _ = ctx::set_current(context).and_then(|()| ctx::synchronize());
                let _ = ctx::set_current(std::ptr::null_mut());
                let _ = primary_ctx::release(device);
            }
        }
    }
}

/// Waits until the GPUs have finished the work of this process, or for so long. Whether they have.
pub(crate) fn wait_until_done_within(limit: Duration) -> bool {
    static WAITS: AtomicBool = AtomicBool::new(false);
    // One thread waits at a time, however often this is asked for.
    if WAITS.swap(true, AcqRel) {
        return false;
    }
    let (done, is_done) = mpsc::channel();
    let thread = quiet_thread::spawn("stepscope-wait", move || {
        wait_until_done();
        WAITS.store(false, Release);
        // Nobody may listen any more.
        let _ = done.send(());
    });
    if thread.is_err() {
        WAITS.store(false, Release);
    }
    is_done.recv_timeout(limit).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;

    #[test]
    fn the_gpu_of_a_rank_is_the_one_it_uses() {
        assert_eq!(choose(&[], Some(0)), None);
        assert_eq!(choose(&[3], Some(0)), Some(3), "it sees one, whatever its number is elsewhere");
        assert_eq!(choose(&[0, 3], Some(3)), Some(3));
        assert_eq!(choose(&[1, 3], None), Some(1));
    }

    #[test]
    fn without_a_driver_there_is_no_gpu_and_nothing_to_wait_for() {
        wait_until_done();
        assert!(wait_until_done_within(Duration::from_secs(60)) && wait_until_done_within(Duration::from_secs(60)));
        match Gpu::in_use() {
            Some(gpu) => assert!(!gpu.description.name.is_empty() && gpu.description.memory_bytes > Some(0)),
            None => skipped("gpu", &"no GPU is in use"),
        }
    }
}
