"""How members find, watch and reach each other."""
