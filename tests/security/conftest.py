from pair_of_servers import pair as pair
