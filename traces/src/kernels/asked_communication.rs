//! What a range or an operator on the host asks of other ranks, by the name that PyTorch gives it.

use super::communication_named;
use crate::vocabulary::SpanKind;

/// What is asked of other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedCommunication {
    /// The operation, as far as the name tells it.
    pub operation: SpanKind,
    /// Who carries it out.
    pub carrier: Carrier,
}

/// Who carries messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The host: it talks as long as the range lasts.
    Host,
    /// A device, to which the range hands it over.
    Device,
    /// Either of them.
    Unknown,
}

impl AskedCommunication {
    /// What a name asks for, if it does: `nccl:all_reduce`, `gloo:barrier`, `c10d::allgather_`.
    pub fn named(name: &str) -> Option<AskedCommunication> {
        let (asked, operation) = name.split_once(':')?;
        let (carrier, operation) = match (asked, operation.strip_prefix(':')) {
            ("nccl" | "rccl" | "xccl" | "hccl", None) => (Carrier::Device, operation),
            ("gloo" | "mpi" | "ucc", None) => (Carrier::Host, operation),
            ("c10d" | "c10d_functional" | "_c10d_functional", Some(operator)) => (Carrier::Unknown, operator),
            _ => return None,
        };
        // Behind the word are the ranks, of messages: `send 0->1`.
        let word = operation.split(' ').next().unwrap_or_default();
        Some(AskedCommunication { operation: communication_named(word), carrier })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_asked_for_and_of_whom() {
        use SpanKind::{AllGather, AllReduce, AllToAll, Barrier, Communication, ReduceScatter, Send};
        for (name, expected) in [
            ("nccl:all_reduce", Some((AllReduce, Carrier::Device))),
            ("nccl:_all_gather_base", Some((AllGather, Carrier::Device))),
            ("nccl:all_to_all", Some((AllToAll, Carrier::Device))),
            ("nccl:send 0->1", Some((Send, Carrier::Device))),
            ("nccl:coalesced", Some((Communication, Carrier::Device))),
            ("gloo:all_reduce", Some((AllReduce, Carrier::Host))),
            ("gloo:barrier", Some((Barrier, Carrier::Host))),
            ("c10d::_reduce_scatter_base_", Some((ReduceScatter, Carrier::Unknown))),
            ("_c10d_functional::wait_tensor", Some((Communication, Carrier::Unknown))),
            ("aten::all", None),
            ("nccl::all_reduce", None),
            ("c10d:allreduce_", None),
            ("all_reduce", None),
        ] {
            let asked = AskedCommunication::named(name).map(|asked| (asked.operation, asked.carrier));
            assert_eq!(asked, expected, "{name}");
        }
    }
}
