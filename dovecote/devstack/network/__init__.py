"""Gates between servers, to cut and slow connections."""
