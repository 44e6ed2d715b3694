//! What a communication kernel does, from its arguments or its name.

use super::{
    event::Arguments,
    value::{TraceValue, number, text},
};
use crate::{kernels::communication_named, operators::Shapes, vocabulary::SpanKind};

/// Which operation something does. Its arguments know better than its name, unless they say nothing.
pub(super) fn operation(name: &str, arguments: &Arguments<'_>) -> SpanKind {
    let said = text(arguments.collective()).map_or(SpanKind::Communication, |said| communication_named(&said));
    if said == SpanKind::Communication { communication_named(name) } else { said }
}

/// The bytes of the message: of what is gathered or scattered, all of it.
pub(super) fn message_bytes(arguments: &Arguments<'_>) -> Option<u64> {
    let elements = number::<u64>(arguments.elements_in()).max(number(arguments.elements_out()))?;
    elements.checked_mul(element_bytes(&text(arguments.element_type())?)?)
}

/// The same of a range in which communication is asked for, which says what the rank puts in. Of what is gathered that is
/// its part alone.
pub(super) fn given_bytes(kind: SpanKind, arguments: &Arguments<'_>) -> Option<u64> {
    let [dimensions, types] = [arguments.dimensions()?, arguments.types()?].map(TraceValue::written);
    let given = Shapes::of_profiler(&dimensions, Some(&types)).filter(|_| kind != SpanKind::AllGather)?;
    let bytes = given.tensors().try_fold(0_u64, |sum, tensor| sum.checked_add(tensor.bytes()?))?;
    (bytes > 0).then_some(bytes)
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
    use super::*;

    #[test]
    fn arguments_say_how_much_and_what() {
        let arguments = |text| Arguments::of(text).unwrap();
        let gather = arguments(
            r#"{"Collective name": "_allgather_base", "In msg nelems": 10, "Out msg nelems": 40, "dtype": "BFloat16"}"#,
        );
        assert_eq!(operation("ncclDevKernel_Generic", &gather), SpanKind::AllGather);
        assert_eq!(message_bytes(&gather), Some(80));
        let coalesced = arguments(r#"{"Collective name": "coalesced", "In msg nelems": 10, "dtype": "Strange"}"#);
        assert_eq!(operation("ncclDevKernel_SendRecv", &coalesced), SpanKind::Communication);
        assert_eq!(message_bytes(&coalesced), None);
        assert_eq!(message_bytes(&arguments(r#"{"In msg nelems": 18446744073709551615, "dtype": "Long"}"#)), None);
    }

    #[test]
    fn what_is_given_says_how_much() {
        let asked = r#"{"Input Dims": [[6, 10], [4]], "Input type": ["float", "long int"]}"#;
        let given = |kind, text| given_bytes(kind, &Arguments::of(text).unwrap());
        assert_eq!(given(SpanKind::AllToAll, asked), Some(6 * 10 * 4 + 4 * 8));
        assert_eq!(given(SpanKind::AllGather, asked), None, "it is the part of one rank");
        assert_eq!(given(SpanKind::AllReduce, r#"{"Input Dims": [[6]], "Input type": ["strange"]}"#), None);
        assert_eq!(given(SpanKind::AllReduce, r#"{"Input Dims": [], "Input type": []}"#), None);
        assert_eq!(given(SpanKind::AllReduce, "{}"), None);
    }
}
