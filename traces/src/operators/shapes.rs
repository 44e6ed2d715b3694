//! What an operator is given: tensors, lists of them, and other things.

use std::{fmt, str::FromStr};

use serde_json::Value;

/// No operator has more arguments, or lists with more tensors, that we look at.
const MOST_TENSORS: usize = 4096;
const MOST_DIMENSIONS: usize = 16;

/// The arguments of an operator. They write themselves as `bf16[8,16] - (f32[4] f32[4])`: two tensors, something else
/// between them, and a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shapes(pub Vec<OperatorArgument>);

/// An argument of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorArgument {
    /// A tensor.
    Tensor(Tensor),
    /// A list of tensors.
    List(Vec<Tensor>),
    /// Anything else.
    Other,
}

/// What is known of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// What its elements are, where that is known.
    pub element: Option<ElementType>,
    /// Its dimensions.
    pub dimensions: Vec<u64>,
}

macro_rules! elements {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $bytes:literal, [$($long:literal),*];)*) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ElementType {
            $($(#[$doc])* $name,)*
        }

        impl ElementType {
            /// The word for it.
            pub fn word(self) -> &'static str {
                match self { $(ElementType::$name => $word,)* }
            }

            /// How many bytes one takes.
            pub fn bytes(self) -> u64 {
                match self { $(ElementType::$name => $bytes,)* }
            }

            /// The one that PyTorch's profiler calls so.
            fn of_long(word: &str) -> Option<ElementType> {
                match word {
                    $($($long)|* => Some(ElementType::$name),)*
                    _ => None,
                }
            }

            fn of_word(word: &str) -> Option<ElementType> {
                match word {
                    $($word => Some(ElementType::$name),)*
                    _ => None,
                }
            }
        }
    };
}

elements! {
    /// Double precision.
    F64 = "f64", 8, ["double"];
    /// Single precision.
    F32 = "f32", 4, ["float"];
    /// Brain floats.
    Bf16 = "bf16", 2, ["c10::BFloat16"];
    /// Half precision.
    F16 = "f16", 2, ["c10::Half"];
    /// Eight bits.
    F8 = "f8", 1, ["c10::Float8_e4m3fn", "c10::Float8_e5m2", "c10::Float8_e4m3fnuz", "c10::Float8_e5m2fnuz", "c10::Float8_e8m0fnu"];
    /// Two numbers of four bits.
    F4 = "f4x2", 1, ["c10::Float4_e2m1fn_x2"];
    /// Integers of 64 bits.
    I64 = "i64", 8, ["long int", "long", "long long"];
    /// Integers of 32 bits.
    I32 = "i32", 4, ["int"];
    /// Integers of 16 bits.
    I16 = "i16", 2, ["short int", "short"];
    /// Integers of eight bits.
    I8 = "i8", 1, ["signed char"];
    /// Bytes.
    U8 = "u8", 1, ["unsigned char"];
    /// Truth values.
    Bool = "bool", 1, ["bool"];
    /// Complex numbers of single precision.
    C64 = "c64", 8, ["c10::complex<float>"];
}

impl Tensor {
    /// How many elements it has.
    pub fn elements(&self) -> Option<u64> {
        self.dimensions.iter().try_fold(1_u64, |all, side| all.checked_mul(*side))
    }

    /// How many bytes they take.
    pub fn bytes(&self) -> Option<u64> {
        self.elements()?.checked_mul(self.element?.bytes())
    }
}

impl Shapes {
    /// What the profiler of PyTorch writes: the dimensions of each argument, and the types.
    pub fn of_profiler(dimensions: &str, types: Option<&str>) -> Option<Shapes> {
        let dimensions: Vec<Value> = serde_json::from_str(dimensions).ok()?;
        let types: Vec<String> = types.and_then(|types| serde_json::from_str(types).ok()).unwrap_or_default();
        let mut left = MOST_TENSORS;
        let arguments = dimensions.iter().take(MOST_TENSORS).enumerate().map(|(index, argument)| {
            let word = types.get(index).map_or("", String::as_str);
            let element = ElementType::of_long(word);
            let Value::Array(sides) = argument else { return OperatorArgument::Other };
            let is_list = sides.first().is_some_and(Value::is_array);
            if is_list {
                let tensors = sides.iter().map_while(|sides| {
                    left = left.checked_sub(1)?;
                    tensor(sides.as_array()?, element)
                });
                return OperatorArgument::List(tensors.collect());
            }
            // A number has no dimensions, as a tensor of one has; and what is no tensor has the type of none.
            let is_tensor = !sides.is_empty() || element.is_some();
            tensor(sides, element).filter(|_| is_tensor).map_or(OperatorArgument::Other, OperatorArgument::Tensor)
        });
        Some(Shapes(arguments.collect()).trimmed())
    }

    /// Without what is no tensor at the end.
    fn trimmed(mut self) -> Shapes {
        while self.0.pop_if(|argument| *argument == OperatorArgument::Other).is_some() {}
        self
    }

    /// The tensor that is an argument.
    pub(crate) fn tensor(&self, index: usize) -> Option<&Tensor> {
        match self.0.get(index)? {
            OperatorArgument::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// What the first matrix is made of.
    pub fn matrix_element(&self) -> Option<ElementType> {
        self.tensors().filter(|tensor| tensor.dimensions.len() > 1).find_map(|tensor| tensor.element)
    }

    /// Every tensor, those in lists too.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.0.iter().flat_map(|argument| match argument {
            OperatorArgument::Tensor(tensor) => std::slice::from_ref(tensor),
            OperatorArgument::List(tensors) => tensors.as_slice(),
            OperatorArgument::Other => &[],
        })
    }
}

fn tensor(sides: &[Value], element: Option<ElementType>) -> Option<Tensor> {
    let dimensions: Option<Vec<u64>> = sides.iter().take(MOST_DIMENSIONS + 1).map(Value::as_u64).collect();
    Some(Tensor { element, dimensions: dimensions.filter(|sides| sides.len() <= MOST_DIMENSIONS)? })
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sides: Vec<String> = self.dimensions.iter().map(u64::to_string).collect();
        write!(f, "{}[{}]", self.element.map_or("", ElementType::word), sides.join(","))
    }
}

impl fmt::Display for Shapes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, argument) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { " " } else { "" })?;
            match argument {
                OperatorArgument::Tensor(tensor) => write!(f, "{tensor}")?,
                OperatorArgument::List(tensors) => {
                    let tensors: Vec<String> = tensors.iter().map(Tensor::to_string).collect();
                    write!(f, "({})", tensors.join(" "))?;
                }
                OperatorArgument::Other => f.write_str("-")?,
            }
        }
        Ok(())
    }
}

/// What is no text of shapes.
#[derive(Debug, PartialEq, Eq)]
pub struct NoShapes;

impl FromStr for Tensor {
    type Err = NoShapes;

    fn from_str(text: &str) -> Result<Tensor, NoShapes> {
        let (element, sides) = text.strip_suffix(']').and_then(|text| text.split_once('[')).ok_or(NoShapes)?;
        let sides = sides.split(',').filter(|side| !side.is_empty()).map(|side| side.parse().map_err(|_| NoShapes));
        Ok(Tensor { element: ElementType::of_word(element), dimensions: sides.collect::<Result<_, _>>()? })
    }
}

impl FromStr for Shapes {
    type Err = NoShapes;

    fn from_str(text: &str) -> Result<Shapes, NoShapes> {
        let mut arguments = Vec::new();
        let mut list: Option<Vec<Tensor>> = None;
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            let inner = word.trim_start_matches('(').trim_end_matches(')');
            if word.starts_with('(') {
                list = Some(Vec::new());
            }
            match (&mut list, inner) {
                (_, "") => {}
                (None, "-") => arguments.push(OperatorArgument::Other),
                (None, tensor) => arguments.push(OperatorArgument::Tensor(tensor.parse()?)),
                (Some(list), tensor) => list.push(tensor.parse()?),
            }
            if word.ends_with(')') {
                arguments.push(OperatorArgument::List(list.take().ok_or(NoShapes)?));
            }
        }
        Ok(Shapes(arguments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_of_the_profiler_are_read_and_written() {
        for (dimensions, types, text) in [
            ("[[4096, 64], [64, 32]]", Some(r#"["c10::BFloat16", "c10::BFloat16"]"#), "bf16[4096,64] bf16[64,32]"),
            (
                "[[32], [8, 16], [16, 32], [], []]",
                Some(r#"["float", "float", "float", "Scalar", "Scalar"]"#),
                "f32[32] f32[8,16] f32[16,32]",
            ),
            ("[[], [4], []]", Some(r#"["float", "float", "Scalar"]"#), "f32[] f32[4]"),
            ("[[[2, 3], [4]], [], [5]]", Some(r#"["TensorList", "", "strange"]"#), "([2,3] [4]) - [5]"),
            ("[[8, 8]]", None, "[8,8]"),
            ("[]", None, ""),
        ] {
            let shapes = Shapes::of_profiler(dimensions, types).unwrap();
            assert_eq!(shapes.to_string(), text);
            assert_eq!(text.parse(), Ok(shapes));
        }
        assert_eq!(Shapes::of_profiler("[[1, -2]]", None), Some(Shapes(vec![])), "no tensor has such a side");
        assert_eq!(Shapes::of_profiler("{}", None), None);
        assert_eq!("bf16[2".parse::<Shapes>(), Err(NoShapes));
        assert_eq!("bf16[2]) x".parse::<Shapes>(), Err(NoShapes));
    }

    #[test]
    fn sizes_do_not_overflow() {
        let tensor = Tensor { element: Some(ElementType::F32), dimensions: vec![u64::MAX, 2] };
        assert_eq!((tensor.elements(), tensor.bytes()), (None, None));
    }
}
