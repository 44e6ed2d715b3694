//! What a communication kernel does, from its arguments or its name.

use super::event::{Arguments, number, text};
use crate::vocabulary::SpanKind;

/// Whether a kernel is one of NCCL's or RCCL's.
pub(super) fn communicates(name: &str, arguments: &Arguments<'_>) -> bool {
    arguments.collective.is_some() || name.contains("nccl") || name.contains("rccl")
}

/// Which operation a kernel does. Its arguments know better than its name, unless they say nothing.
pub(super) fn operation(name: &str, arguments: &Arguments<'_>) -> SpanKind {
    let said = text(arguments.collective).map_or(SpanKind::Communication, |said| named(&said));
    if said == SpanKind::Communication { named(name) } else { said }
}

/// The operation that a name tells of.
fn named(name: &str) -> SpanKind {
    // The parameters of a kernel tell nothing of it.
    let name = name.split('(').next().unwrap_or(name);
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let has = |part: &str| plain.contains(part);
    match () {
        () if has("allreduce") => SpanKind::AllReduce,
        () if has("reducescatter") => SpanKind::ReduceScatter,
        () if has("allgather") => SpanKind::AllGather,
        () if has("alltoall") => SpanKind::AllToAll,
        () if has("broadcast") => SpanKind::Broadcast,
        () if has("barrier") => SpanKind::Barrier,
        () if has("reduce") => SpanKind::Reduce,
        // One kernel does both.
        () if has("send") && has("recv") => SpanKind::Communication,
        () if has("send") => SpanKind::Send,
        () if has("recv") => SpanKind::Receive,
        () => SpanKind::Communication,
    }
}

/// The bytes of the message: of what is gathered or scattered, all of it.
pub(super) fn message_bytes(arguments: &Arguments<'_>) -> Option<u64> {
    let elements = number::<u64>(arguments.elements_in).max(number(arguments.elements_out))?;
    elements.checked_mul(element_bytes(&text(arguments.element_type)?)?)
}

/// The size of a number, by PyTorch's name for its type.
fn element_bytes(element_type: &str) -> Option<u64> {
    match element_type {
        "Byte" | "Char" | "Bool" => Some(1),
        "Half" | "BFloat16" | "Short" | "UInt16" => Some(2),
        "Float" | "Int" | "UInt32" | "ComplexHalf" => Some(4),
        "Double" | "Long" | "UInt64" | "ComplexFloat" => Some(8),
        "ComplexDouble" => Some(16),
        _ if element_type.starts_with("Float8") => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::event::BoxedArguments, *};

    #[test]
    fn operations_are_known_by_their_names() {
        for (name, kind) in [
            ("ncclDevKernel_AllReduce_bf16_RING(ncclDevKernelArgsStorage<4096ul>)", SpanKind::AllReduce),
            ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", SpanKind::AllReduce),
            ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*)", SpanKind::ReduceScatter),
            ("ncclDevKernel_AllGather_RING_LL", SpanKind::AllGather),
            ("ncclDevKernel_Broadcast_RING_LL", SpanKind::Broadcast),
            ("ncclDevKernel_Reduce_Sum_f32_RING_LL", SpanKind::Reduce),
            ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", SpanKind::Communication),
            ("ncclDevKernel_Generic_4", SpanKind::Communication),
            ("_allgather_base", SpanKind::AllGather),
            ("reduce_scatter_tensor_coalesced", SpanKind::ReduceScatter),
            ("all_to_allv", SpanKind::AllToAll),
            ("send", SpanKind::Send),
            ("recv", SpanKind::Receive),
            ("wait", SpanKind::Communication),
        ] {
            assert_eq!(named(name), kind, "{name}");
        }
    }

    #[test]
    fn arguments_say_how_much_and_what() {
        let arguments = |text| serde_json::from_str::<BoxedArguments<'_>>(text).unwrap().0;
        let gather = arguments(
            r#"{"Collective name": "_allgather_base", "In msg nelems": 10, "Out msg nelems": 40, "dtype": "BFloat16"}"#,
        );
        assert_eq!(operation("ncclDevKernel_Generic", &gather), SpanKind::AllGather);
        assert_eq!(message_bytes(&gather), Some(80));
        let coalesced = arguments(r#"{"Collective name": "coalesced", "In msg nelems": 10, "dtype": "Strange"}"#);
        assert_eq!(operation("ncclDevKernel_SendRecv", &coalesced), SpanKind::Communication);
        assert_eq!(message_bytes(&coalesced), None);
        assert_eq!(message_bytes(&arguments(r#"{"In msg nelems": 18446744073709551615, "dtype": "Long"}"#)), None);
        assert!(!communicates("gemm", &arguments("{}")) && communicates("gemm", &coalesced));
    }
}
