//! The FLOPs of attention: scores of all queries and keys, and their sums over values. No mask is taken off, as
//! `torch.utils.flop_counter` does not, either.
//!
//! Forward those are two products; backward there are five, of which the first computes the scores again.

use super::shapes::Shapes;

/// How the sides of a tensor follow each other.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// Batch, heads, sequence, width.
    HeadsFirst,
    /// Batch, sequence, heads, width.
    SequenceFirst,
}

/// The FLOPs of an operator that is attention.
pub(super) fn attention(operator: &str, shapes: &Shapes) -> Option<u64> {
    let (first, order, is_backward) = match operator {
        "aten::_scaled_dot_product_flash_attention"
        | "aten::_scaled_dot_product_efficient_attention"
        | "aten::_scaled_dot_product_cudnn_attention"
        | "aten::_scaled_dot_product_flash_attention_for_cpu"
        | "aten::_cudnn_attention_forward"
        | "aten::_scaled_dot_product_attention_math"
        | "aten::scaled_dot_product_attention" => (0, Order::HeadsFirst, false),
        "aten::_flash_attention_forward" | "aten::_efficient_attention_forward" => (0, Order::SequenceFirst, false),
        "flash_attn::_flash_attn_forward"
        | "FlashAttnFunc"
        | "flash_attn_3::fwd"
        | "flash_attn_3::_flash_attn_forward" => (0, Order::SequenceFirst, false),
        "aten::_scaled_dot_product_flash_attention_backward"
        | "aten::_scaled_dot_product_efficient_attention_backward"
        | "aten::_scaled_dot_product_cudnn_attention_backward"
        | "aten::_cudnn_attention_backward"
        | "aten::_scaled_dot_product_flash_attention_for_cpu_backward" => (1, Order::HeadsFirst, true),
        "aten::_flash_attention_backward" | "aten::_efficient_attention_backward" => (1, Order::SequenceFirst, true),
        "flash_attn::_flash_attn_backward" => (1, Order::SequenceFirst, true),
        _ => return None,
    };
    let side = |argument: usize| -> Option<[u64; 4]> {
        let sides: [u64; 4] = shapes.tensor(first + argument)?.dimensions.as_slice().try_into().ok()?;
        let [batch, one, other, width] = sides;
        Some(if order == Order::HeadsFirst { sides } else { [batch, other, one, width] })
    };
    let ([batch, heads, queries, width], [_, _, keys, _], [_, _, _, value_width]) = (side(0)?, side(1)?, side(2)?);
    let pairs = [batch, heads, queries, keys].iter().try_fold(2_u64, |all, side| all.checked_mul(*side))?;
    // Of queries with keys there are the scores, and their gradients to both; of values their sum, and two gradients.
    let widths = if is_backward { 3 * width + 2 * value_width } else { width + value_width };
    pairs.checked_mul(widths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attention_by_hand() {
        let flops = |operator: &str, shapes: &str| attention(operator, &shapes.parse().unwrap());
        let (forward, pairs) = ("bf16[2,4,8,16] bf16[2,4,8,16] bf16[2,4,8,16]", 2 * 2 * 4 * 8 * 8);
        assert_eq!(flops("aten::_scaled_dot_product_flash_attention", forward), Some(pairs * 32));
        let transposed = "bf16[2,8,4,16] bf16[2,8,4,16] bf16[2,8,4,16]";
        assert_eq!(flops("aten::_flash_attention_forward", transposed), Some(pairs * 32));
        let backward = format!("bf16[2,4,8,16] {forward} bf16[2,4,8,16]");
        assert_eq!(flops("aten::_scaled_dot_product_cudnn_attention_backward", &backward), Some(pairs * 16 * 5));
        assert_eq!(
            flops("aten::_flash_attention_forward", "bf16[64,4,16] bf16[64,4,16] bf16[64,4,16]"),
            None,
            "packed"
        );
        assert_eq!(flops("aten::add", forward), None);
    }
}
