//! A mixture of experts in the place of a feed-forward network, or beside one.
//!
//! ```text
//! input ─┬─► router ─► choose ────────────────────────────── weights ─┐
//!        └─► sort by expert ─► there ─► gate, up ─► swiglu ─► down ─► back ─► weighted sum ─► output
//! ```
//!
//! Tensor ranks each have a part of every expert, and all choose alike. So the sum over them is that of a dense network, but for
//! the gradient of the weights, which each rank knows a part of.

use std::ops::Range;

use stepscope_plan::{Placement, Unit};
use stepscope_traces::MemoryCategory;

use super::{Engine, matrices::MatrixGradients, weights::NetworkTensors};
use crate::{
    backend::{DType, Factors, Product, Routed, Routing, Tensor},
    parallel::expert::Routes,
};

/// The experts of a layer that are here, or their gradients.
pub(crate) struct ExpertTensors(Vec<NetworkTensors>);

impl ExpertTensors {
    pub(crate) fn of(placement: &Placement, unit: &Unit, tensor: &Tensor) -> ExpertTensors {
        let slots = placement.slots_of(unit);
        let experts = slots.chunk_by(|one, other| one.copy == other.copy);
        ExpertTensors(experts.map(|slots| NetworkTensors::of(slots, unit, tensor)).collect())
    }

    /// How wide each of them is here.
    fn width(&self, hidden: usize) -> usize {
        self.0[0].width(hidden)
    }
}

/// What a mixture keeps from the forward pass for the backward pass.
pub(crate) struct Kept {
    choice: Choice,
    routes: Routes,
    /// What the experts here got, by expert. Rows × hidden.
    rows: Tensor,
    /// Rows × two widths of an expert.
    gate_up: Tensor,
    /// Their product. Rows × width of an expert.
    product: Tensor,
    /// What came back of what this rank's tokens chose, sorted by expert. Choices × hidden.
    returned: Tensor,
}

/// What tokens chose.
struct Choice {
    /// Tokens × experts.
    probabilities: Tensor,
    /// Tokens × choices.
    weights: Tensor,
    /// Tokens × choices.
    choices: Tensor,
    /// How often each sequence chose each expert, wherever its tokens are. Sequences × experts.
    counts: Tensor,
    /// Choices, sorted by expert.
    order: Tensor,
    /// Where each of them is there.
    places: Tensor,
}

impl Choice {
    fn routed(&self) -> Routed<'_> {
        let Choice { probabilities, weights, choices, counts, .. } = self;
        Routed { probabilities, weights, choices, counts }
    }
}

impl Kept {
    /// How many rows each expert here got.
    pub(crate) fn rows_of_experts(&self) -> &[usize] {
        &self.routes.rows
    }
}

impl Engine {
    /// # Panics
    /// When the model has no experts, and so nobody to route to.
    fn routing(&self) -> Routing {
        self.sizes.routing.unwrap_or_else(|| panic!("no experts here"))
    }

    /// Sends tokens through the experts that the router chooses.
    pub(crate) fn experts_forward(&self, router: &Tensor, experts: &ExpertTensors, input: &Tensor) -> Kept {
        let Routing { top_k, .. } = self.routing();
        let hidden = self.sizes.hidden;
        let ffn = experts.width(hidden);
        let (choice, counts) = self.choose(router, input);
        let routes = self.expert.agree(&counts, hidden);
        let sent = self.backend.allocate(
            self.sizes.tokens * top_k * hidden,
            self.numbers.compute,
            self.expert.sent(MemoryCategory::Activations),
        );
        self.backend.dispatch(input, &choice.order, &sent, top_k);
        let rows = self.expert.there(&routes, sent, hidden, MemoryCategory::Activations);
        let take = |width, category| self.expert_rows(&routes, width, category);
        let gate_up = take(2 * ffn, MemoryCategory::Activations);
        self.multiply(&routes, |expert, of| of.multiplied(&rows, &experts.0[expert].gate_up, &gate_up));
        let product = take(ffn, MemoryCategory::Activations);
        self.backend.swiglu(&gate_up, &product, ffn);
        let made = take(hidden, self.expert.sent(MemoryCategory::Activations));
        self.multiply(&routes, |expert, of| of.multiplied(&product, &experts.0[expert].down, &made));
        let elements = self.sizes.tokens * top_k * hidden;
        let returned = self.expert.back(&routes, made, elements, MemoryCategory::Activations);
        Kept { choice, routes, rows, gate_up, product, returned }
    }

    /// Puts together what came back from the experts: this tensor rank's part of it.
    pub(crate) fn experts_output(&self, kept: &Kept, output: &Tensor) {
        let Routing { top_k, .. } = self.routing();
        self.backend.combine(&kept.returned, &kept.choice.places, Some(&kept.choice.weights), output, top_k);
    }

    /// Adds to the loss how unevenly experts were chosen.
    pub(crate) fn add_balance_loss(&self, kept: &Kept, total: &Tensor) {
        let routing = self.routing();
        if routing.balance > 0.0 {
            self.backend.balance_loss(routing, kept.choice.routed(), total);
        }
    }

    /// Lets tokens choose, and counts the choices of each expert.
    fn choose(&self, router: &Tensor, input: &Tensor) -> (Choice, Vec<usize>) {
        let routing = self.routing();
        let Routing { sequences, experts, top_k, .. } = routing;
        let (dtype, of_sequences) = (self.numbers.compute.sum(), sequences * experts);
        let numbers = || self.backend.allocate(self.sizes.tokens * top_k, DType::U32, MemoryCategory::Activations);
        let choice = Choice {
            probabilities: self.sums(experts, MemoryCategory::Activations),
            weights: self.sums(top_k, MemoryCategory::Activations),
            choices: numbers(),
            counts: self.backend.allocate(of_sequences, dtype, MemoryCategory::Activations),
            order: numbers(),
            places: numbers(),
        };
        self.project(input, router, &choice.probabilities);
        self.backend.route(routing, choice.routed());
        self.backend.count_choices(routing, choice.routed());
        self.context.sum(&choice.counts);
        // If this fails, so does all that comes after it.
        let chosen = self.backend.choices(&choice.choices).unwrap_or_else(|error| {
            self.backend.tell_later(error);
            vec![0; choice.choices.elements()]
        });
        let mut order: Vec<u32> = (0..chosen.len() as u32).collect();
        order.sort_by_key(|choice| chosen[*choice as usize]);
        let (mut places, mut counts) = (vec![0; order.len()], vec![0; experts]);
        for (place, number) in order.iter().enumerate() {
            places[*number as usize] = place as u32;
            counts[chosen[*number as usize] as usize] += 1;
        }
        self.backend.upload_tokens(order, &choice.order);
        self.backend.upload_tokens(places, &choice.places);
        (choice, counts)
    }

    /// Takes the gradient of a mixture's output back through it: adds to the gradients of its experts, or puts them off, and
    /// returns what makes up that of its input.
    pub(crate) fn experts_backward(
        &self,
        weights: &ExpertTensors,
        matrices: &mut MatrixGradients,
        kept: Kept,
        gradient: &Tensor,
    ) -> InputGradient {
        let routing = self.routing();
        let (hidden, top_k) = (self.sizes.hidden, routing.top_k);
        let ffn = weights.width(hidden);
        let Kept { choice, routes, rows, gate_up, product, returned } = kept;
        let d_returned = self.backend.allocate(
            returned.elements(),
            self.numbers.compute,
            self.expert.sent(MemoryCategory::Workspace),
        );
        let d_weights = self.sums(top_k, MemoryCategory::Workspace);
        let of = (&returned, &choice.order, &choice.weights);
        self.backend.combine_backward(gradient, of, (&d_returned, &d_weights), top_k);
        drop(returned);
        self.tensor.sum(&d_weights);
        let d_logits = self.temporary(routing.experts);
        self.backend.route_backward(routing, choice.routed(), &d_weights, &d_logits);

        let take = |width, category| self.expert_rows(&routes, width, category);
        let d_made = self.expert.there(&routes, d_returned, hidden, self.expert.sent(MemoryCategory::Workspace));
        let d_product = take(ffn, MemoryCategory::Workspace);
        self.multiply(&routes, |expert, of| of.gradient_of_rows(&d_made, &weights.0[expert].down, &d_product));
        self.expert_matrix_backward(matrices, (|expert| &expert.down, &routes), &d_made, &product);
        drop((d_made, product));
        let d_gate_up = take(2 * ffn, MemoryCategory::Workspace);
        self.backend.swiglu_backward(&gate_up, &d_product, &d_gate_up, ffn);
        drop((gate_up, d_product));
        let d_rows = take(hidden, self.expert.sent(MemoryCategory::Workspace));
        self.multiply(&routes, |expert, of| of.gradient_of_rows(&d_gate_up, &weights.0[expert].gate_up, &d_rows));
        self.expert_matrix_backward(matrices, (|expert| &expert.gate_up, &routes), &d_gate_up, &rows);
        let elements = self.sizes.tokens * top_k * hidden;
        let sorted = self.expert.back(&routes, d_rows, elements, self.expert.sent(MemoryCategory::Workspace));
        InputGradient { sorted, places: choice.places, d_logits }
    }

    /// The gradient of a mixture's input: this tensor rank's part of it. The router's is in that of the first.
    pub(crate) fn experts_input_gradient(&self, of: &InputGradient, router: &Tensor, d_input: &Tensor) {
        let routing = self.routing();
        self.backend.combine(&of.sorted, &of.places, None, d_input, routing.top_k);
        if self.tensor.is_first() {
            let (rows, columns) = (self.sizes.tokens, self.sizes.hidden);
            let product = Product { accumulate: true, ..Product::plain(rows, columns, routing.experts) };
            self.backend.matmul(product, &of.d_logits, router, d_input);
        }
    }

    /// Adds to the gradient of a matrix of each expert here, which got these rows.
    pub(crate) fn expert_weights_backward(
        &self,
        (matrix, routes): (fn(&NetworkTensors) -> &Tensor, &Routes),
        gradient: &Tensor,
        rows: &Tensor,
        gradients: &ExpertTensors,
    ) {
        self.multiply(routes, |expert, of| of.gradient_of_matrix(gradient, rows, matrix(&gradients.0[expert])));
    }

    /// A row of numbers for each row of the experts here.
    fn expert_rows(&self, routes: &Routes, width: usize, category: MemoryCategory) -> Tensor {
        self.backend.allocate(routes.all_rows() * width, self.numbers.compute, category)
    }

    /// Does a product for each expert here that has rows.
    fn multiply(&self, routes: &Routes, factors: impl Fn(usize, &SomeRows) -> Factors) {
        let (mut first, all) = (0, routes.all_rows());
        let mut products = Vec::new();
        for (expert, rows) in routes.rows.iter().enumerate() {
            if *rows > 0 {
                products.push(factors(expert, &SomeRows { range: first..first + rows, all }));
            }
            first += rows;
        }
        self.backend.products(&products);
    }
}

/// Some of all rows: those of an expert.
struct SomeRows {
    range: Range<usize>,
    all: usize,
}

impl SomeRows {
    fn width(&self, tensor: &Tensor) -> usize {
        tensor.elements() / self.all
    }

    fn of(&self, tensor: &Tensor) -> Tensor {
        let width = self.width(tensor);
        tensor.slice(self.range.start * width..self.range.end * width)
    }

    /// Multiplies them by a matrix, which is outputs × inputs.
    fn multiplied(&self, x: &Tensor, matrix: &Tensor, y: &Tensor) -> Factors {
        let product = Product::plain(self.range.len(), self.width(y), self.width(x));
        let product = Product { transpose_b: true, ..product };
        Factors { product, a: self.of(x), b: matrix.clone(), out: self.of(y) }
    }

    /// The gradient of what was multiplied, from that of the product.
    fn gradient_of_rows(&self, d_y: &Tensor, matrix: &Tensor, d_x: &Tensor) -> Factors {
        let product = Product::plain(self.range.len(), self.width(d_x), self.width(d_y));
        Factors { product, a: self.of(d_y), b: matrix.clone(), out: self.of(d_x) }
    }

    /// The gradient of the matrix, added to what is there.
    fn gradient_of_matrix(&self, d_y: &Tensor, x: &Tensor, d_matrix: &Tensor) -> Factors {
        let product = Product::plain(self.width(d_y), self.width(x), self.range.len());
        let product = Product { transpose_a: true, accumulate: true, ..product };
        Factors { product, a: self.of(d_y), b: self.of(x), out: d_matrix.clone() }
    }
}

/// What makes up the gradient of a mixture's input.
pub(crate) struct InputGradient {
    /// Of what went to experts, sorted by them. Choices × hidden.
    sorted: Tensor,
    places: Tensor,
    /// Of the router's output. Tokens × experts.
    pub(crate) d_logits: Tensor,
}
