"""What a release is made of beside the code: images, a chart, a bill of materials."""
