"""What tests share: doubles of the product's neighbours, models, and ways to judge many cases at once."""
