"""Results of products that devices add up."""
