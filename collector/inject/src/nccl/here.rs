//! What NCCL is telling of on one thread, until it is known which kernel that is.

use std::cell::Cell;

use stepscope_collector::{LaunchInfo, cupti::LatestKernel};

use super::{communicator::Communicator, event::NcclEvent, operations::Operations};

/// What NCCL gets back for an event, and hands in where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handle {
    /// Nothing: its end is of no interest.
    None,
    /// Of calls that belong together.
    GroupCall,
    /// Of a plan. NCCL before 2.28 tells of the operations of a plan only if it has one.
    Plan,
}

thread_local! {
    static HERE: Cell<Here<LatestKernel>> = const { Cell::new(Here { call: None, plan: None }) };
}

/// Takes what NCCL says on this thread, of a communicator.
pub(super) fn hear(communicator: &Communicator, said: NcclEvent) -> Handle {
    // What was launched before calls, or before a plan, is of neither of those that follow.
    let latest = if matches!(said, NcclEvent::GroupCall | NcclEvent::Plan) { LatestKernel::take() } else { None };
    with(|here| here.hear(communicator, said, latest)).unwrap_or(Handle::None)
}

/// Takes that an event has ended, and says what the kernel was.
pub(super) fn end(handle: Handle) {
    let described = match handle {
        Handle::None => None,
        Handle::Plan => with(Here::plan_ended),
        Handle::GroupCall => {
            let only = LatestKernel::take().filter(|kernel| kernel.is_only());
            with(|here| here.calls_ended(only))
        }
    };
    if let Some((kernel, info)) = described.flatten() {
        kernel.describe(info);
    }
}

fn with<R>(action: impl FnOnce(&mut Here<LatestKernel>) -> R) -> Option<R> {
    HERE.try_with(|cell| {
        let mut here = cell.take();
        let result = action(&mut here);
        cell.set(here);
        result
    })
    .ok()
}

/// What is told of on a thread. `Kernel` is one that it launched.
#[derive(Clone, Copy)]
struct Here<Kernel> {
    /// Calls, while no plan has come of them.
    call: Option<Operations>,
    /// A plan, and its kernel if this thread launched it.
    plan: Option<(Option<Kernel>, Operations)>,
}

impl<Kernel> Default for Here<Kernel> {
    fn default() -> Here<Kernel> {
        Here { call: None, plan: None }
    }
}

impl<Kernel> Here<Kernel> {
    fn hear(&mut self, communicator: &Communicator, said: NcclEvent, latest: Option<Kernel>) -> Handle {
        // Counted whether or not the kernel is known.
        let operation = match said {
            NcclEvent::GroupCall => {
                *self = Here { call: Some(Operations::default()), plan: None };
                return Handle::GroupCall;
            }
            NcclEvent::Plan => {
                *self = Here { call: None, plan: Some((latest, Operations::default())) };
                return Handle::Plan;
            }
            NcclEvent::MessageCall { captured } => {
                if captured {
                    communicator.capture();
                }
                return Handle::None;
            }
            NcclEvent::Other => return Handle::None,
            NcclEvent::CollectiveCall(asked) => communicator.call(asked),
            NcclEvent::Collective { asked, sequence } => communicator.collective(asked, sequence),
            NcclEvent::Message { asked, own, peer } => communicator.message(asked, own, peer),
        };
        let is_call = matches!(said, NcclEvent::CollectiveCall(_));
        let plan = self.plan.as_mut().map(|(_, operations)| operations);
        if let Some(operations) = if is_call { self.call.as_mut() } else { plan } {
            operations.add(operation);
        }
        Handle::None
    }

    /// A kernel, and what it was.
    fn plan_ended(&mut self) -> Option<(Kernel, LaunchInfo)> {
        let (kernel, operations) = self.plan.take()?;
        kernel.zip(operations.info())
    }

    /// A kernel, and what it was, if there is just one and no plan was told of.
    fn calls_ended(&mut self, only: Option<Kernel>) -> Option<(Kernel, LaunchInfo)> {
        only.zip(self.call.take()?.info())
    }
}

#[cfg(test)]
mod tests;
