//! How members of groups find each other, and see that they do.

use std::{
    collections::HashMap,
    sync::{Arc, Condvar, Mutex},
    thread,
};

use stepscope_traces::Group;

use super::{
    call::Call,
    library::{self, Id, Member},
};
use crate::{
    backend::{
        Stream,
        cuda::{Array, CudaBackend},
    },
    comm::{ProcessGroup, Reduction},
    error::TrainError,
    lock::lock,
    rendezvous::Link,
};

/// The first member of each group makes its name, and everyone hears of all.
pub(super) fn exchange_ids(link: &Link, groups: &[ProcessGroup]) -> Result<HashMap<Group, Id>, TrainError> {
    let mut made = Vec::new();
    for group in groups.iter().filter(|group| group.index == 0) {
        made.push((group.group, Id::new().map_err(not_connected)?.bytes()));
    }
    let garbled = |why: String| TrainError::Disagreement(format!("the names of NCCL's groups: {why}"));
    let made = serde_json::to_vec(&made).map_err(|error| garbled(error.to_string()))?;
    let mut ids = HashMap::new();
    for made in link.exchange("the names of NCCL's groups", made)? {
        let made: Vec<(Group, Vec<u8>)> = serde_json::from_slice(&made).map_err(|error| garbled(error.to_string()))?;
        for (group, bytes) in made {
            ids.insert(group, Id::from_bytes(&bytes).ok_or_else(|| garbled(format!("{} bytes", bytes.len())))?);
        }
    }
    Ok(ids)
}

/// Connects to the members of every group, in the order that all have them in, and does a little of everything with each:
/// NCCL takes its memory at the first use, and waits for the others.
pub(super) fn connect_all(
    backend: &CudaBackend,
    groups: &[ProcessGroup],
    ids: &HashMap<Group, Id>,
    token: Array,
) -> Result<Vec<(Group, Member)>, TrainError> {
    let device = backend.device();
    device.enter()?;
    let mut members = Vec::new();
    for group in groups {
        let id = ids.get(&group.group).ok_or_else(|| not_connected(format!("nobody named group {}", group.group)))?;
        let member = Member::connect(group.size(), *id, group.index).map_err(not_connected)?;
        greet(group, &member, token, device.stream(Stream::Communication).cu_stream()).map_err(not_connected)?;
        device.synchronize()?;
        members.push((group.group, member));
    }
    Ok(members)
}

/// Sums with all, and hands something on to the members before and after.
#[allow(unsafe_code, reason = "NCCL takes addresses")]
fn greet(
    group: &ProcessGroup,
    member: &Member,
    token: Array,
    stream: cudarc::driver::sys::CUstream,
) -> Result<(), String> {
    let place = |number: usize| Array { address: token.address + 4 * number as u64, elements: 1, dtype: token.dtype };
    // SAFETY: the token has four numbers, and is there for as long as the communicator.
    let call = |call: Call| unsafe { member.call(&call, stream) };
    call(Call::all_reduce(place(0), Reduction::Maximum))?;
    let size = group.size();
    let (next, previous) = ((group.index + 1) % size, (group.index + size - 1) % size);
    library::together(|| {
        call(Call::send(place(0), next))?;
        call(Call::send(place(1), previous))?;
        call(Call::receive(place(2), previous))?;
        call(Call::receive(place(3), next))
    })
}

/// Does what may never end, on a thread that is left behind when there is trouble.
pub(super) fn patiently<T: Send + 'static>(
    link: &Link,
    work: impl FnOnce() -> Result<T, TrainError> + Send + 'static,
) -> Result<T, TrainError> {
    let done = Arc::new((Mutex::new(None), Condvar::new()));
    let doing = done.clone();
    let thread = thread::Builder::new().name("connecting".into());
    let spawned = thread.spawn(move || {
        *lock(&doing.0) = Some(work());
        doing.1.notify_all();
    });
    spawned.map_err(|error| not_connected(error.to_string()))?;
    link.trouble.wait(&done.0, &done.1, Option::take)?
}

pub(super) fn not_connected(why: String) -> TrainError {
    TrainError::Device { action: "connect to other ranks".into(), why }
}
