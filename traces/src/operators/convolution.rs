//! The FLOPs of convolutions: two for each element of the result, input channel of its group, and place of the filter.

use super::shapes::Shapes;

/// The FLOPs of an operator that is a convolution.
pub(super) fn convolution(operator: &str, shapes: &Shapes, concrete: &[String]) -> Option<u64> {
    let list = |index: usize| -> Option<Vec<i64>> { serde_json::from_str(concrete.get(index)?).ok() };
    match operator {
        // The gradient that comes in is as large as the result; by default both gradients go out.
        "aten::convolution_backward" => {
            let masked =
                |mask: &String| mask.split(',').take(2).filter(|wanted| wanted.contains("True")).count() as u64;
            products(&shapes.tensor(0)?.dimensions, &shapes.tensor(2)?.dimensions)?
                .checked_mul(concrete.last().map_or(2, masked))
        }
        "aten::cudnn_convolution" | "aten::miopen_convolution" | "aten::_convolution" | "aten::convolution" => {
            let (input, filter) = (&shapes.tensor(0)?.dimensions, &shapes.tensor(1)?.dimensions);
            // These have a bias before that, others do not.
            let (padding, stride) = match operator {
                "aten::cudnn_convolution" => (list(2)?, list(3)?),
                "aten::miopen_convolution" => (list(3)?, list(4)?),
                _ => (list(4)?, list(3)?),
            };
            let dilation = if operator == "aten::cudnn_convolution" { list(4) } else { list(5) }?;
            let ([batch, _, sides @ ..], [channels, _, window @ ..]) = (input.as_slice(), filter.as_slice()) else {
                return None;
            };
            let mut result = vec![*batch, *channels];
            for (axis, (side, window)) in sides.iter().zip(window).enumerate() {
                let of = |list: &[i64]| list.get(axis).or(list.first()).and_then(|value| u64::try_from(*value).ok());
                let reach = of(&dilation)?.checked_mul(window.checked_sub(1)?)?;
                let room = side.checked_add(of(&padding)?.checked_mul(2)?)?.checked_sub(reach)?.checked_sub(1)?;
                result.push(room / of(&stride)?.max(1) + 1);
            }
            products(&result, filter)
        }
        _ => None,
    }
}

/// Those of a result and a filter: the filter's second side are the input channels of a group.
fn products(result: &[u64], filter: &[u64]) -> Option<u64> {
    let (_, window) = filter.split_first()?;
    result.iter().chain(window).try_fold(2_u64, |all, side| all.checked_mul(*side))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn convolutions_by_hand() {
        let flops = |operator: &str, shapes: &str, concrete: &[&str]| {
            let concrete: Vec<String> = concrete.iter().map(|text| (*text).to_owned()).collect();
            convolution(operator, &shapes.parse().unwrap(), &concrete)
        };
        let shapes = "f32[2,3,8,8] f32[5,3,3,3]";
        let arguments = ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "1"];
        // Of 8 with 1 around it and every second place there are 4.
        assert_eq!(flops("aten::cudnn_convolution", shapes, &arguments), Some(2 * 2 * 5 * 4 * 4 * 3 * 3 * 3));
        assert_eq!(flops("aten::cudnn_convolution", shapes, &[]), None, "strides are not known");
        let backward = "f32[2,5,4,4] f32[2,3,8,8] f32[5,3,3,3]";
        let mask = ["", "[True, True, False]"];
        assert_eq!(flops("aten::convolution_backward", backward, &mask), Some(2 * 2 * 2 * 5 * 16 * 27));
        assert_eq!(
            flops("aten::convolution_backward", backward, &["", "[False, True, True]"]),
            Some(2 * 2 * 5 * 16 * 27)
        );
    }
}
