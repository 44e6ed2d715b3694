//! Memory that the driver hands out, by who called for it: what each call says when it has ended.
//!
//! Pools of stream-ordered memory (`cuMemAllocAsync`, PyTorch's backend `cudaMallocAsync`) are left out: what they take from
//! the device is not what is asked of them. So is managed memory, which lies where it was used last.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_int, c_void},
    mem::MaybeUninit,
    ptr,
};

use cudarc::{
    cupti::sys::{
        CUpti_CallbackData, cuMemAlloc_v2_params, cuMemAllocPitch_v2_params, cuMemCreate_params, cuMemFree_v2_params,
        cuMemRelease_params, cuMemRetainAllocationHandle_params,
    },
    driver::sys::{CUmemLocationType, CUresult},
};
use nix::libc;
use stepscope_traces::{MemoryHolder, now};

use super::{
    held_memory::{self, Block},
    holders::{Allocation, of_callers},
};

/// How far up the stack callers are looked for.
const MOST_FRAMES: usize = 64;

/// The calls that are watched.
pub(crate) const CALLS: [&str; 6] = [
    "cuMemAlloc_v2",
    "cuMemAllocPitch_v2",
    "cuMemCreate",
    "cuMemFree_v2",
    "cuMemRelease",
    "cuMemRetainAllocationHandle",
];

/// What a call did to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Taken(Block, u64),
    Held(Block),
    GivenBack(Block),
}

/// Finds callers once where it does not matter how long that takes: the first time, a library is loaded for it.
pub(crate) fn prepare() {
    callers(&mut [ptr::null_mut(); MOST_FRAMES]);
}

/// One of [`CALLS`] has ended.
///
/// # Safety
///
/// The data is what CUPTI says of the end of that call.
pub(crate) unsafe fn ended(data: &CUpti_CallbackData) {
    if data.functionName.is_null() {
        return;
    }
    // SAFETY: it is a constant of CUPTI.
    let name = unsafe { CStr::from_ptr(data.functionName) }.to_bytes();
    // SAFETY: the data is what CUPTI says of the end of the call of this name, as the caller promises.
    let Some(effect) = (unsafe { effect(name, data) }) else { return };
    let time = now();
    match effect {
        Effect::Taken(block, bytes) => {
            let holder = holder(block);
            held_memory::with(|held| held.take(time, block, holder, bytes));
        }
        Effect::Held(block) => held_memory::with(|held| held.hold(block)),
        Effect::GivenBack(block) => held_memory::with(|held| held.give_back(time, block)),
    }
}

/// What a call did, if it is one of ours and went well.
///
/// # Safety
///
/// The data is what CUPTI says of the end of a call of this name.
unsafe fn effect(name: &[u8], data: &CUpti_CallbackData) -> Option<Effect> {
    if !CALLS.iter().any(|call| call.as_bytes() == name) {
        return None;
    }
    // SAFETY: a call of this name has parameters of this type, and a result; what they point to is the caller's, who waits.
    unsafe {
        let succeeded = data.functionReturnValue.cast::<u32>().as_ref() == Some(&(CUresult::CUDA_SUCCESS as u32));
        if !succeeded || data.functionParams.is_null() {
            return None;
        }
        match name {
            b"cuMemAlloc_v2" => {
                let call = &*data.functionParams.cast::<cuMemAlloc_v2_params>();
                Some(Effect::Taken(Block::Address(*call.dptr.as_ref()?), call.bytesize as u64))
            }
            b"cuMemAllocPitch_v2" => {
                let call = &*data.functionParams.cast::<cuMemAllocPitch_v2_params>();
                let bytes = call.pPitch.as_ref()?.saturating_mul(call.Height);
                Some(Effect::Taken(Block::Address(*call.dptr.as_ref()?), bytes as u64))
            }
            b"cuMemCreate" => {
                let call = &*data.functionParams.cast::<cuMemCreate_params>();
                // The number and not the type, of which a later driver may have more values.
                let place = ptr::from_ref(&call.prop.as_ref()?.location.type_).cast::<u32>().read();
                let is_on_device = place == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as u32;
                is_on_device.then_some(Effect::Taken(Block::Handle(*call.handle.as_ref()?), call.size as u64))
            }
            b"cuMemFree_v2" => {
                let call = &*data.functionParams.cast::<cuMemFree_v2_params>();
                Some(Effect::GivenBack(Block::Address(call.dptr)))
            }
            b"cuMemRelease" => {
                let call = &*data.functionParams.cast::<cuMemRelease_params>();
                Some(Effect::GivenBack(Block::Handle(call.handle)))
            }
            b"cuMemRetainAllocationHandle" => {
                let call = &*data.functionParams.cast::<cuMemRetainAllocationHandle_params>();
                Some(Effect::Held(Block::Handle(*call.handle.as_ref()?)))
            }
            _ => None,
        }
    }
}

/// Who asked for a block: whoever is in this call.
fn holder(block: Block) -> MemoryHolder {
    let allocation = match block {
        Block::Address(_) => Allocation::Mapped,
        Block::Handle(_) => Allocation::Physical,
    };
    let mut frames = [ptr::null_mut(); MOST_FRAMES];
    of_callers(callers(&mut frames).iter().filter_map(|frame| file_of(*frame)), allocation)
}

/// Where the callers of this are, the nearest first.
fn callers(frames: &mut [*mut c_void; MOST_FRAMES]) -> &[*mut c_void] {
    // SAFETY: there is room for as many.
    let found = unsafe { libc::backtrace(frames.as_mut_ptr(), MOST_FRAMES as c_int) };
    &frames[..usize::try_from(found).unwrap_or(0).min(MOST_FRAMES)]
}

/// The file that code was loaded from. The code is in a call, so the file stays.
fn file_of<'a>(code: *mut c_void) -> Option<&'a [u8]> {
    let mut information = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; the structure is there to be written to, and all zeroes are a value of it.
    unsafe {
        let known = libc::dladdr(code, information.as_mut_ptr()) != 0;
        let name = information.assume_init().dli_fname;
        (known && !name.is_null()).then(|| CStr::from_ptr(name).to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use cudarc::driver::sys::CUmemAllocationProp;

    use super::*;

    /// What a call did that ended with this result.
    fn of<P>(name: &str, parameters: &P, mut result: u32) -> Option<Effect> {
        // SAFETY: all zeroes are a value of it.
        let mut data: CUpti_CallbackData = unsafe { std::mem::zeroed() };
        data.functionParams = ptr::from_ref(parameters).cast();
        data.functionReturnValue = ptr::from_mut(&mut result).cast();
        // SAFETY: made as CUPTI does.
        unsafe { effect(name.as_bytes(), &data) }
    }

    #[test]
    fn calls_say_what_they_take_and_give_back() {
        let mut address = 0x7000;
        let taken = cuMemAlloc_v2_params { dptr: &mut address, bytesize: 512 };
        assert_eq!(of("cuMemAlloc_v2", &taken, 0), Some(Effect::Taken(Block::Address(0x7000), 512)));
        assert_eq!(of("cuMemAlloc_v2", &taken, 2), None, "it failed");
        assert_eq!(of("cuMemAllocAsync", &taken, 0), None, "of a pool");
        let mut pitch = 64;
        let rows = cuMemAllocPitch_v2_params {
            dptr: &mut address,
            pPitch: &mut pitch,
            WidthInBytes: 60,
            Height: 3,
            ElementSizeBytes: 4,
        };
        assert_eq!(of("cuMemAllocPitch_v2", &rows, 0), Some(Effect::Taken(Block::Address(0x7000), 192)));
        let freed = cuMemFree_v2_params { dptr: 0x7000 };
        assert_eq!(of("cuMemFree_v2", &freed, 0), Some(Effect::GivenBack(Block::Address(0x7000))));
    }

    #[test]
    fn handles_count_where_they_are_on_a_device() {
        // SAFETY: all zeroes are a value of it.
        let mut place: CUmemAllocationProp = unsafe { std::mem::zeroed() };
        let mut handle = 5;
        place.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        let created = cuMemCreate_params { handle: &mut handle, size: 4096, prop: &place, flags: 0 };
        assert_eq!(of("cuMemCreate", &created, 0), Some(Effect::Taken(Block::Handle(5), 4096)));
        place.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST;
        let on_host = cuMemCreate_params { prop: &place, ..created };
        assert_eq!(of("cuMemCreate", &on_host, 0), None);
        let mut held = 5;
        let retained = cuMemRetainAllocationHandle_params { handle: &mut held, addr: ptr::null_mut() };
        assert_eq!(of("cuMemRetainAllocationHandle", &retained, 0), Some(Effect::Held(Block::Handle(5))));
        let released = cuMemRelease_params { handle: 5 };
        assert_eq!(of("cuMemRelease", &released, 0), Some(Effect::GivenBack(Block::Handle(5))));
    }

    #[test]
    fn callers_have_files() {
        prepare();
        let mut frames = [ptr::null_mut(); MOST_FRAMES];
        let files: Vec<&[u8]> = callers(&mut frames).iter().filter_map(|frame| file_of(*frame)).collect();
        assert!(files.len() > 2 && files[0].windows(9).any(|part| part == b"collector"), "{files:?}");
        assert_eq!(holder(Block::Address(1)), MemoryHolder::Program, "no driver is among them");
    }
}
